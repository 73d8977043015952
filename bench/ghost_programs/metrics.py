"""Metrics of torchmetrics over some batches; prints what they come to."""

import json
import sys

import torch
from torch.utils import _pytree as pytree
from torchmetrics import (
    CosineSimilarity,
    KendallRankCorrCoef,
    KLDivergence,
    MeanMetric,
    MeanSquaredError,
    PearsonCorrCoef,
    R2Score,
    SpearmanCorrCoef,
)
from torchmetrics.classification import (
    BinaryAccuracy,
    BinaryAUROC,
    BinaryAveragePrecision,
    BinaryCalibrationError,
    BinaryHingeLoss,
    BinaryMatthewsCorrCoef,
    MulticlassAccuracy,
    MulticlassConfusionMatrix,
    MulticlassF1Score,
    MulticlassJaccardIndex,
    MulticlassROC,
    MultilabelStatScores,
)
from torchmetrics.image import (
    PeakSignalNoiseRatio,
    StructuralSimilarityIndexMeasure,
    TotalVariation,
)
from torchmetrics.text import Perplexity

DEVICE = sys.argv[1]


def cases():
    torch.manual_seed(0)
    likely, truth = torch.rand(4, 20), torch.randint(0, 2, (4, 20))
    of_five, classes = torch.rand(40, 5).softmax(-1), torch.randint(0, 5, (40,))
    one, other = torch.rand(4, 10), torch.rand(4, 10)
    images = torch.rand(2, 3, 32, 32), torch.rand(2, 3, 32, 32)
    for binary in (
        *(BinaryAccuracy(), BinaryAUROC(), BinaryAUROC(thresholds=10), BinaryAveragePrecision()),
        *(BinaryCalibrationError(), BinaryHingeLoss(), BinaryMatthewsCorrCoef()),
        MultilabelStatScores(20),
    ):
        yield binary, (likely, truth)
    for several in (
        *(MulticlassAccuracy(5), MulticlassConfusionMatrix(5), MulticlassF1Score(5)),
        *(MulticlassJaccardIndex(5), MulticlassROC(5)),
    ):
        yield several, (of_five, classes)
    for paired in (
        MeanSquaredError(),
        PearsonCorrCoef(10),
        SpearmanCorrCoef(10),
        CosineSimilarity(),
    ):
        yield paired, (one, other)
    yield R2Score(), (one.flatten(), other.flatten())
    yield KendallRankCorrCoef(), (one.flatten(), other.flatten())
    yield KLDivergence(), (one.softmax(-1), other.softmax(-1))
    yield StructuralSimilarityIndexMeasure(data_range=1.0), images
    yield PeakSignalNoiseRatio(data_range=1.0), images
    yield TotalVariation(), images[:1]
    yield MeanMetric(), (one,)
    yield Perplexity(), (torch.rand(2, 8, 5), torch.randint(5, (2, 8)))


def main():
    found = []
    for metric, given in cases():
        metric.to(DEVICE)
        given = [part.to(DEVICE) for part in given]
        metric(*given)
        metric.update(*given)
        found += [leaf.flatten().tolist() for leaf in pytree.tree_leaves(metric.compute())]
        metric.reset()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
