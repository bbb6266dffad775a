"""A small GPT."""

from torch import nn

WORDS, WIDTH = 32, 32


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.query, self.key, self.value, self.mixed = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        y = self.before(x)
        heads = [part(y).unflatten(-1, (-1, 8)).transpose(1, 2) for part in (self.query, self.key, self.value)]
        seen = nn.functional.scaled_dot_product_attention(*heads, is_causal=True)
        x = x + self.mixed(seen.transpose(1, 2).flatten(2))
        return x + self.down(nn.functional.gelu(self.up(self.between(x))))


class Gpt(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, tokens):
        x = self.words(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x).clone()  # PyTorch 2.6 detaches a stage's output in place, which no view allows
