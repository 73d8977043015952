"""Models of transformers, made small: two generate words, one learns; prints words and losses."""

import json
import sys

import torch
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    LlamaConfig,
    LlamaForCausalLM,
    T5Config,
    T5ForConditionalGeneration,
)

DEVICE = sys.argv[1]
START = [[1, 4, 5]]


def llama():
    config = LlamaConfig(
        hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, vocab_size=50, max_position_embeddings=64,
    )  # fmt: skip
    model = LlamaForCausalLM(config).to(DEVICE).eval()
    text = torch.tensor(START, device=DEVICE)
    given = {"attention_mask": torch.ones_like(text), "pad_token_id": 0}
    return model.generate(text, max_new_tokens=8, do_sample=False, **given).tolist()


def t5():
    config = T5Config(
        d_model=32,
        d_kv=8,
        d_ff=64,
        num_layers=2,
        num_heads=4,
        vocab_size=50,
        decoder_start_token_id=0,
    )
    model = T5ForConditionalGeneration(config).to(DEVICE).eval()
    return model.generate(torch.tensor(START, device=DEVICE), max_new_tokens=6).tolist()


def bert():
    config = BertConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, vocab_size=50,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    model = BertForSequenceClassification(config).to(DEVICE)
    steps = torch.optim.AdamW(model.parameters(), lr=1e-3)
    text = torch.randint(3, 50, (4, 12)).to(DEVICE)
    labels = torch.tensor([0, 1, 0, 1]).to(DEVICE)
    losses = []
    for _ in range(3):
        out = model(input_ids=text, attention_mask=torch.ones_like(text), labels=labels)
        out.loss.backward()
        steps.step()
        steps.zero_grad()
        losses.append(out.loss.item())
    return losses


def main():
    found = []
    for run in (llama, t5, bert):
        torch.manual_seed(0)
        found.append(run())
    print(json.dumps(found))


if __name__ == "__main__":
    main()
