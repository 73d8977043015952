"""The classes of torch and the libraries around it by what they inherit from: package, then the entry of
`libraries.LIBRARY_ROOTS`, then the last names of classes.

Made by `bench/make_torch_classes.py` from torch 2.13.0, torchvision 0.29.2, torchaudio 2.11.0, torcheval
0.0.7, torchtnt 0.2.4; not written by hand.
"""

from __future__ import annotations

from collections.abc import Mapping

_NAMES: Mapping[str, Mapping[str, str]] = {
    "torch": {
        "lightning.Callback": """
PostTrainingDataSparsity TrainingAwareDataSparsity
""",
        "torch.Tensor": """
AsyncCollectiveTensor CausalBias ComplexTensor DTensor ErasedTensor ExpandedWeight FakeTensor
FlatParameter FunctionalTensor LocalShardsWrapper LocalTensor MaskedTensor NestedTensor Parameter
ShardedTensor ShardedTensorBase SparseSemiStructuredTensor SparseSemiStructuredTensorCUSPARSELT
SparseSemiStructuredTensorCUTLASS Tensor UninitializedBuffer UninitializedParameter
""",
        "torch.autograd.Function": """
AssociativeScanAutogradOp BackwardHookFunction BaseHOPFunction CheckpointFunction Complex
CondAutogradOp ConvPerSampleGrad EmbeddingPerSampleGrad FakeQuantPerChannel FlexAttentionAutogradOp
Function Gather GroupNormPerSampleGrad InplaceFunction InstanceNormPerSampleGrad
InvokeLeafFunctionAutogradOp InvokeSubgraphAutogradOp LOBPCGAutogradFunction LayerNormPerSampleGrad
LinearPerSampleGrad LocalMapAutogradOp MapAutogradOp ModIndex MyAutogradFunction NestedIOFunction
NestedRedistribute RMSNormFunction Redistribute ReduceAddCoalesced RegisterPostBackwardFunction
RegisterPreBackwardFunction Resize ScanAutogradOp TracableCreateParameter Type ViewBufferFromNested
ViewNestedFromBuffer WhileLoopAutogradOp _AllGather _AllGatherBase _AllReduce _AlltoAll
_AlltoAllSingle _Broadcast _DDPSink _Dirichlet _FromTorchTensor _Gather _LocalContiguous
_MaskedContiguous _MaskedToDense _MaskedToSparse _MaskedToSparseCsr _MaskedWhere _Reduce
_Reduce_Scatter _Scatter _ToTorchTensor
""",
        "torch.distributions.Distribution": """
Bernoulli Beta Binomial Categorical Cauchy Chi2 ContinuousBernoulli Dirichlet Distribution
ExpRelaxedCategorical Exponential ExponentialFamily FisherSnedecor Gamma GeneralizedPareto Geometric
Gumbel HalfCauchy HalfNormal Independent InverseGamma Kumaraswamy LKJCholesky Laplace LogNormal
LogisticNormal LogitRelaxedBernoulli LowRankMultivariateNormal MixtureSameFamily Multinomial
MultivariateNormal NegativeBinomial Normal OneHotCategorical OneHotCategoricalStraightThrough Pareto
Poisson RelaxedBernoulli RelaxedOneHotCategorical StudentT TransformedDistribution Uniform VonMises
Weibull Wishart
""",
        "torch.distributions.Transform": """
AbsTransform AffineTransform CatTransform ComposeTransform CorrCholeskyTransform
CumulativeDistributionTransform ExpTransform IndependentTransform LowerCholeskyTransform
PositiveDefiniteTransform PowerTransform ReshapeTransform SigmoidTransform SoftmaxTransform
SoftplusTransform StackTransform StickBreakingTransform TanhTransform _InverseTransform
""",
        "torch.nn.Module": """
ActivationWrapper AdaptiveAvgPool1d AdaptiveAvgPool2d AdaptiveAvgPool3d AdaptiveLogSoftmaxWithLoss
AdaptiveMaxPool1d AdaptiveMaxPool2d AdaptiveMaxPool3d AffineQuantizedObserverBase AlphaDropout
AssumeConstantResult AutogradFunction AveragedModel AvgPool1d AvgPool2d AvgPool3d BCELoss
BCEWithLogitsLoss BNReLU2d BNReLU3d BatchNorm1d BatchNorm2d BatchNorm3d Bilinear CELU CTCLoss
ChannelShuffle CheckpointWrapper CircularPad1d CircularPad2d CircularPad3d ClassMethod
CondBranchClassMethod CondBranchNestedFunction CondBranchNonlocalVariables CondClosedOverVariable
CondOperands CondPredicate ConstantPad1d ConstantPad2d ConstantPad3d ConstrainAsSizeExample
ConstrainAsValueExample Container Conv1d Conv2d Conv3d ConvAdd2d ConvAddReLU2d ConvBn1d ConvBn2d
ConvBn3d ConvBnReLU1d ConvBnReLU2d ConvBnReLU3d ConvReLU1d ConvReLU2d ConvReLU3d ConvTranspose1d
ConvTranspose2d ConvTranspose3d CosineEmbeddingLoss CosineSimilarity CrossEntropyLoss DataParallel
DeQuantStub DeQuantize Decorator Dictionary DistributedDataParallel DistributedDataParallelCPU
Dropout Dropout1d Dropout2d Dropout3d DynamicShapeAssert DynamicShapeConstructor DynamicShapeIfGuard
DynamicShapeMap DynamicShapeRound DynamicShapeSlicing DynamicShapeView ELU Embedding EmbeddingBag
EmbeddingPackedParams ExportableModule FXFloatFunctional FakeQuantize FakeQuantizeBase
FakeRootModule FakeSparsity FakeStructuredSparsity FeatureAlphaDropout FixedQParamsFakeQuantize
FixedQParamsObserver FloatFunctional FnWithKwargs Fold FoldedGraphModule FractionalMaxPool2d
FractionalMaxPool3d FullyShardedDataParallel FunctionalModule FunctionalModuleWithBuffers
FusedGraphModule FusedMovingAvgObsFakeQuantize GELU GLU GRU GRUCell GaussianNLLLoss GmWrapper
GroupNorm GuardsFn Hardshrink Hardsigmoid Hardswish Hardtanh HingeEmbeddingLoss HistogramObserver
HolderModule HuberLoss InstanceNorm1d InstanceNorm2d InstanceNorm3d InterpreterModule
InterpreterModuleDispatcher KLDivLoss L1Loss LPPool1d LPPool2d LPPool3d LSTM LSTMCell LayerNorm
LazyBatchNorm1d LazyBatchNorm2d LazyBatchNorm3d LazyConv1d LazyConv2d LazyConv3d LazyConvTranspose1d
LazyConvTranspose2d LazyConvTranspose3d LazyInstanceNorm1d LazyInstanceNorm2d LazyInstanceNorm3d
LazyLinear LeakyReLU Linear LinearBn1d LinearCrossEntropyLoss LinearLeakyReLU LinearPackedParams
LinearReLU LinearTanh ListContains ListUnpack LocalResponseNorm LogSigmoid LogSoftmax Logger
LossWrapper LoweredBackendModule MSELoss MarginRankingLoss MaxPool1d MaxPool2d MaxPool3d MaxUnpool1d
MaxUnpool2d MaxUnpool3d MeanShadowLogger MinMaxObserver Mish MkldnnBatchNorm MkldnnConv1d
MkldnnConv2d MkldnnConv3d MkldnnLinear MkldnnPrelu ModelAttrMutation ModelReportObserver ModuleDict
ModuleList ModuleToTrace ModuleWrapper MovingAverageMinMaxObserver
MovingAveragePerChannelMinMaxObserver MultiLabelMarginLoss MultiLabelSoftMarginLoss MultiMarginLoss
MultiheadAttention MySubModule NLLLoss NLLLoss2d NestedFunction NnapiModule
NonDynamicallyQuantizableLinear NoopObserver NullContextManager ONNXTracedModule ObservedGraphModule
ObservedStandaloneGraphModule ObserverBase OffloadWrapper OptimizedModule OptionalInput
OutputComparisonLogger OutputLogger PReLU PackedParameter PairwiseDistance ParameterDict
ParameterList ParametrizationList PerChannelMinMaxObserver Pipe PipeSequential PixelShuffle
PixelUnshuffle PlaceholderObserver PoissonNLLLoss PytreeFlatten QFunctional QuackRMSNorm QuantStub
QuantWrapper Quantize QuantizedGRU QuantizedGRUCell QuantizedGraphModule QuantizedLSTM
QuantizedLSTMCell QuantizedLinear QuantizedLinearFP16 QuantizedRNNBase QuantizedRNNCell
QuantizedRNNCellBase RNN RNNBase RNNCell RNNCellBase RReLU ReLU ReLU6 RecordingObserver
RecursiveScriptModule ReferenceQuantizedModule ReflectionPad1d ReflectionPad2d ReflectionPad3d
RemoteModule ReplicationPad1d ReplicationPad2d ReplicationPad3d ReuseInputObserver SELU ScalarOutput
ScriptModule Sequential Shadow ShadowLogger SiLU Sigmoid SmoothL1Loss SoftMarginLoss Softmax
Softmax2d Softmin Softplus Softshrink Softsign SpecializedAttribute StaticForLoop StaticIf Tanh
Tanhshrink TensorSetattr Threshold TopLevelTracedModule TorchSymMin TracedModule TransformerDecoder
TransformerDecoderLayer TransformerEncoder TransformerEncoderLayer TripletMarginLoss
TripletMarginWithDistanceLoss TrivialLossWrapper TypeReflectionMethod Unflatten UnflattenedModule
Unfold UniformQuantizationObserverBase UnwrapTensorSubclass Upsample UpsamplingBilinear2d
UpsamplingNearest2d UserInputMutation WeightedQuantizedModule ZeroPad1d ZeroPad2d ZeroPad3d
_AdaptiveAvgPoolNd _AdaptiveMaxPoolNd _AvgPoolNd _BatchNorm _CircularPadNd _CodeOnlyModule
_ConstantPadNd _Container _ConvBnNd _ConvNd _ConvTransposeMixin _ConvTransposeNd
_DerivedObserverOrFakeQuantize _DropoutNd _FusedModule _InputEqualizationObserver _InstanceNorm
_LPPoolNd _LSTMLayer _LSTMSingleLayer _LazyGraphModule _LazyNormBase _LearnableFakeQuantize _Loss
_MaxPoolNd _MaxUnpoolNd _MkldnnConvNd _NormBase _Orthogonal _ReflectionPadNd _RemoteModule
_ReplicationPadNd _ScriptLocalOptimizer _SpectralNorm _StatefulGraphModule
_WeightEqualizationObserver _WeightNorm _WeightedLoss _WrappedMethod _WrapperModule
""",
        "torch.optim.Optimizer": """
ASGD Adadelta Adafactor Adagrad Adam AdamW Adamax LBFGS Muon NAdam Optimizer PostLocalSGDOptimizer
RAdam RMSprop Rprop SGD ShardedOptimizer SparseAdam ZeroRedundancyOptimizer _NamedOptimizer
""",
        "torch.optim.lr_scheduler.LRScheduler": """
ChainedScheduler ConstantLR CosineAnnealingLR CosineAnnealingWarmRestarts CyclicLR ExponentialLR
LRScheduler LambdaLR LinearLR MultiStepLR MultiplicativeLR OneCycleLR PolynomialLR ReduceLROnPlateau
SWALR SequentialLR StepLR _LRScheduler
""",
        "torch.overrides.TorchFunctionMode": """
AutogradStateOpsFailSafeguard BaseTorchFunctionMode FakeCopyMode NoEnterTorchFunctionMode
PreDispatchTorchFunctionMode TorchFunctionMetadataMode TorchFunctionMode TorchRefsMode
TransformGetItemToIndex _NonStrictTorchFunctionHandler
""",
        "torch.utils._python_dispatch.TorchDispatchMode": """
BaseTorchDispatchMode CUDAGraphCaptureControlFlowOpDispatchMode CUDASanitizerDispatchMode
CommDebugMode ComplexTensorMode ControlFlowOpWarmupDispatchMode CrossRefFakeMode DebugMode
FSDPMemTracker FakeTensorMode FunctionalTensorMode LocalTensorMode MemTracker
MemoryProfileDispatchMode PlacementTrackingMode ProxyTorchDispatchMode RuntimeEstimator SACEstimator
SchemaCheckMode TorchDispatchMode WrapComplexMode _AnalyzeCustomOpInputOutputMode
_CachedTorchDispatchMode _CachingTorchDispatchMode _CaptureAtenOp _CloneArgBeforeMutateMode
_FlopCounterMode _LocalScalarDenseSentinel _TensorTrackingMode
""",
    },
    "torchvision": {
        "torch.Tensor": """
BoundingBoxes Image KeyPoints Mask TVTensor Video
""",
        "torch.nn.Module": """
ASPP ASPPConv ASPPPooling AlexNet AnchorGenerator AnyStage AugMix AutoAugment BackboneWithFPN
BasicBlock BasicConv2d BasicStem Bottleneck BottleneckBlock BottleneckTransform CNBlock CenterCrop
ClampBoundingBoxes ClampKeyPoints ColorJitter Conv2Plus1D Conv2dNormActivation Conv3DNoTemporal
Conv3DSimple Conv3dNormActivation ConvGRU ConvNeXt ConvNormActivation ConvertBoundingBoxFormat
ConvertImageDtype CorrBlock CutMix DeepLabHead DeepLabV3 DefaultBoxGenerator DeformConv2d DenseNet
DropBlock2d DropBlock3d DualGraphModule EfficientNet ElasticTransform Encoder EncoderBlock
ExtraFPNBlock FCN FCNHead FCOS FCOSClassificationHead FCOSHead FCOSRegressionHead FastRCNNConvFCHead
FastRCNNPredictor FasterRCNN FeatureEncoder FeaturePyramidNetwork Fire FiveCrop FlowHead
FrozenBatchNorm2d FusedMBConv GaussianBlur GaussianNoise GeneralizedRCNN GeneralizedRCNNTransform
GoogLeNet Grayscale Identity ImageClassification Inception Inception3 InceptionA InceptionAux
InceptionB InceptionC InceptionD InceptionE IntermediateLayerGetter InvertedResidual JPEG
KeypointRCNN KeypointRCNNHeads KeypointRCNNPredictor LRASPP LRASPPHead LastLevelMaxPool
LastLevelP6P7 LayerNorm2d LinearTransformation MBConv MLP MLPBlock MNASNet MViT MaskPredictor
MaskRCNN MaskRCNNHeads MaskRCNNPredictor MaxVit MaxVitBlock MaxVitLayer MixUp MobileNetV2
MobileNetV3 MotionEncoder MultiScaleRoIAlign MultiscaleAttention MultiscaleBlock Normalize
ObjectDetection OpticalFlow PSRoIAlign PSRoIPool Pad PartitionAttentionLayer PatchEmbed3d
PatchMerging PatchMergingV2 Permute Pool PositionalEncoding QuantizableBasicBlock
QuantizableBasicConv2d QuantizableBottleneck QuantizableGoogLeNet QuantizableInception
QuantizableInception3 QuantizableInceptionA QuantizableInceptionAux QuantizableInceptionB
QuantizableInceptionC QuantizableInceptionD QuantizableInceptionE QuantizableInvertedResidual
QuantizableMobileNetV2 QuantizableMobileNetV3 QuantizableResNet QuantizableShuffleNetV2
QuantizableSqueezeExcitation R2Plus1dStem RAFT RGB RPNHead RandAugment RandomAdjustSharpness
RandomAffine RandomApply RandomAutocontrast RandomChannelPermutation RandomCrop RandomCropVideo
RandomEqualize RandomErasing RandomGrayscale RandomHorizontalFlip RandomInvert RandomIoUCrop
RandomPerspective RandomPhotometricDistort RandomPosterize RandomResize RandomResizedCrop
RandomResizedCropVideo RandomRotation RandomShortestSize RandomSolarize RandomVerticalFlip
RandomZoomOut RecurrentBlock RegNet RegionProposalNetwork RelativePositionalMultiHeadAttention
ResBottleneckBlock ResNet ResidualBlock Resize RetinaNet RetinaNetClassificationHead RetinaNetHead
RetinaNetRegressionHead RoIAlign RoIHeads RoIPool S3D SSD SSDClassificationHead
SSDFeatureExtractorVGG SSDHead SSDLiteClassificationHead SSDLiteFeatureExtractorMobileNet
SSDLiteHead SSDLiteRegressionHead SSDRegressionHead SSDScoringHead SanitizeBoundingBoxes
SanitizeKeyPoints ScaleJitter SemanticSegmentation SepInceptionBlock3D SetClampingMode
ShiftedWindowAttention ShiftedWindowAttention3d ShiftedWindowAttentionV2 ShuffleNetV2 SimpleStemIN
SqueezeExcitation SqueezeNet StochasticDepth SwapAxes SwinTransformer SwinTransformer3d
SwinTransformerBlock SwinTransformerBlockV2 TemporalSeparableConv TenCrop ToDtype ToImage
ToPureTensor Transform TrivialAugmentWide TwoMLPHead UniformTemporalSubsample UpdateBlock VGG
VideoClassification VideoResNet VisionTransformer WindowDepartition WindowPartition _AutoAugmentBase
_BaseMixUpCutMix _DenseBlock _DenseLayer _InvertedResidual _RandomApplyTransform
_SimpleSegmentationModel _Transition
""",
    },
    "torchaudio": {
        "torch.autograd.Function": """
DifferentiableFIR DifferentiableIIR GradMultiply RnntLoss
""",
        "torch.nn.Module": """
AddNoise AmplitudeToDB AttPool AutoPool ComputeDeltas Conformer ConformerLayer ConvBlock
ConvLayerBlock ConvTasNet ConvolutionalPositionalEmbedding Convolve DPRNN Deemphasis DeepSpeech
Emformer Encoder EncoderLayer FFTConvolve Fade FeatureExtractor FeatureProjection FeedForward
FrequencyMasking FullyConnected GriffinLim HDemucs HuBERTPretrainModel InverseMelScale
InverseSpectrogram LFCC LayerNorm LogitGenerator Loudness MFCC MVDR MaskGenerator MelResNet MelScale
MelSpectrogram MuLawDecoding MuLawEncoding PSD PitchShift Predictor Preemphasis RNNT RNNTBeamSearch
RNNTLoss RTFMVDR RangeSigmoid ResBlock Resample SelfAttention SingleRNN SlidingWindowCmn SoudenMVDR
SpecAugment SpectralCentroid Spectrogram Speed SpeedPerturbation SquimObjective SquimSubjective
Stretch2d Tacotron2 TimeMasking TimeStretch Transformer UpsampleNetwork Vad Vol Wav2Letter
Wav2Vec2Model WavLMSelfAttention WaveRNN _Attention _AxisMasking _BLSTM _ConvolutionModule
_CustomLSTM _DConv _Decoder _EmformerAttention _EmformerEncoder _EmformerImpl _EmformerLayer
_Encoder _FeedForwardModule _FunctionalModule _GlobalStatsNormalization _GriffinLimVocoder
_HDecLayer _HEncLayer _Joiner _LayerScale _LocalState _LocationLayer _ModuleFeatureExtractor
_Postnet _Predictor _Prenet _ScaledEmbedding _TimeReduction _Wav2Vec2Model _WaveRNNVocoder
""",
    },
    "torcheval": {
        "torch.nn.Module": """
FIDInceptionV3
""",
        "torcheval.Metric": """
AUC BLEUScore BinaryAUPRC BinaryAUROC BinaryAccuracy BinaryBinnedAUPRC BinaryBinnedAUROC
BinaryBinnedPrecisionRecallCurve BinaryConfusionMatrix BinaryF1Score BinaryNormalizedEntropy
BinaryPrecision BinaryPrecisionRecallCurve BinaryRecall BinaryRecallAtFixedPrecision Cat
ClickThroughRate FrechetAudioDistance FrechetInceptionDistance HitRate Max Mean MeanSquaredError
Metric Min MulticlassAUPRC MulticlassAUROC MulticlassAccuracy MulticlassBinnedAUPRC
MulticlassBinnedAUROC MulticlassBinnedPrecisionRecallCurve MulticlassConfusionMatrix
MulticlassF1Score MulticlassPrecision MulticlassPrecisionRecallCurve MulticlassRecall
MultilabelAUPRC MultilabelAccuracy MultilabelBinnedAUPRC MultilabelBinnedPrecisionRecallCurve
MultilabelPrecisionRecallCurve MultilabelRecallAtFixedPrecision PeakSignalNoiseRatio Perplexity
R2Score ReciprocalRank RetrievalPrecision Sum Throughput TopKMultilabelAccuracy WeightedCalibration
WindowedBinaryAUROC WindowedBinaryNormalizedEntropy WindowedClickThroughRate
WindowedMeanSquaredError WindowedWeightedCalibration WordErrorRate WordInformationLost
WordInformationPreserved
""",
    },
    "torchtnt": {
        "torch.nn.Module": """
AveragedModel _BatchNormXd
""",
        "torch.utils._python_dispatch.TorchDispatchMode": """
FlopTensorDispatchMode
""",
        "torchtnt.Callback": """
BaseCSVWriter BaseCheckpointer Callback DistributedCheckpointSaver EarlyStopping EmptyCudaCache
GarbageCollector IterationTimeLogger Lambda LearningRateMonitor MemorySnapshot ProgressReporter
PyTorchProfiler SlowRankDetector SystemResourcesMonitor TQDMProgressBar TensorBoardParameterMonitor
ThroughputLogger TimeLimitInterrupter TimeWaitForBatchLogger TorchCompile TorchSnapshotSaver
TrainProgressMonitor
""",
        "torchtnt.EvalUnit": """
EvalUnit
""",
        "torchtnt.PredictUnit": """
AutoPredictUnit PredictUnit
""",
        "torchtnt.TrainUnit": """
AutoUnit TrainUnit
""",
    },
}

CLASSES: Mapping[str, Mapping[str, str]] = {
    package: {name: known for known, names in by_family.items() for name in names.split()}
    for package, by_family in _NAMES.items()
}
"""By package, the entry of each class."""
