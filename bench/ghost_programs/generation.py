"""Words are drawn one after the other, with keys and values kept; prints them."""

import json
import sys

import torch
from torch import nn
from torch.nn import functional

DEVICE = sys.argv[1]
END = 99


def main():
    torch.manual_seed(0)
    words, mix = nn.Embedding(20, 16).to(DEVICE), nn.Linear(16, 48).to(DEVICE)
    head = nn.Linear(16, 20).to(DEVICE)
    text = torch.tensor([[1]], device=DEVICE)
    keys = values = None
    with torch.inference_mode():
        for _ in range(12):
            query, key, value = mix(words(text[:, -1:])).chunk(3, -1)
            keys = key if keys is None else torch.cat([keys, key], 1)
            values = value if values is None else torch.cat([values, value], 1)
            out = head(functional.scaled_dot_product_attention(query, keys, values))
            following = out[:, -1].argmax(-1, keepdim=True)
            text = torch.cat([text, following], 1)
            if following.item() == END:
                break
    print(json.dumps(text.tolist()))


if __name__ == "__main__":
    main()
