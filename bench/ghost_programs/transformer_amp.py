"""A transformer encoder learns in mixed precision with scaled gradients; prints its losses."""

import json
import sys

import torch
from torch import nn
from torch.nn import functional

DEVICE = sys.argv[1]


def main():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, dropout=0.0)
    encoder = nn.TransformerEncoder(layer, 2).to(DEVICE)
    words, head = nn.Embedding(20, 16).to(DEVICE), nn.Linear(16, 20).to(DEVICE)
    parameters = [*encoder.parameters(), *words.parameters(), *head.parameters()]
    steps = torch.optim.AdamW(parameters, lr=1e-3)
    scaler = torch.amp.GradScaler(DEVICE, enabled=DEVICE != "cpu", init_scale=128.0)
    text = torch.randint(0, 20, (4, 10)).to(DEVICE)
    losses = []
    for _ in range(5):
        mask = nn.Transformer.generate_square_subsequent_mask(10, device=DEVICE)
        with torch.autocast(DEVICE, dtype=torch.bfloat16):
            out = head(encoder(words(text), mask=mask, is_causal=True))
            loss = functional.cross_entropy(out.flatten(0, 1), text.flatten())
        scaler.scale(loss).backward()
        scaler.unscale_(steps)
        nn.utils.clip_grad_norm_(parameters, 1.0)
        scaler.step(steps)
        scaler.update()
        steps.zero_grad()
        losses.append(loss.item())
    print(json.dumps(losses))


if __name__ == "__main__":
    main()
