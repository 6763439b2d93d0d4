"""How much noise holds colluding parties back? The canary of a coalition by simulation: guarded
releases, best attacks.

    python benchmarks/privacy_sigma.py --sigma 4,7,8,10 --parties 3 --rows 200 --runs 1500

Embeddings without structure, and with class structure that the parties share; the labels are
random. The attacks are the ones that come nearest to the bound (matched filter, ridge solutions of
the joint linear system); what is printed is their largest rate, the proven bound, and how the
figure of a protocol with few seeds scatters around it.
"""

import argparse
import math

import torch
import torch.nn.functional as F
from torch import Tensor

from protoevfl.core.transport import unit
from protoevfl.privacy import bounds
from protoevfl.privacy.attacks.linear_system import STRENGTHS, ridge_solution
from protoevfl.privacy.defences.release import coordinates, space
from protoevfl.privacy.learners import largest
from protoevfl.privacy.policy import PrivacySettings

CLASSES, WIDTH = 10, 32


def embeddings(rows: int, parties: int, structured: bool, source: torch.Generator) -> list[Tensor]:
    """f (N, d) of each party."""

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=source, dtype=torch.float64)

    centres = (
        normal(CLASSES, WIDTH)[torch.arange(rows) % CLASSES]
        if structured
        else torch.zeros(rows, WIDTH)
    )
    falling = torch.arange(1, WIDTH + 1).double() ** -0.5
    of_parties = []
    for _ in range(parties):
        turn = torch.linalg.qr(normal(WIDTH, WIDTH))[0]
        of_parties.append(
            (0.7 * normal(rows, WIDTH) + centres) @ turn * (falling if structured else 1.0)
        )
    return of_parties


def one_run(
    settings: PrivacySettings, rows: int, parties: int, structured: bool, source: torch.Generator
) -> Tensor:
    """Right guesses of each attack on one coalition."""
    labels = (torch.arange(rows) % CLASSES)[torch.randperm(rows, generator=source)]
    member, sigma = F.one_hot(labels, CLASSES).double(), settings.sigma(rows, CLASSES)
    received = embeddings(rows, parties, structured, source)
    xs = [coordinates(f, *space(f, settings.rank)[:2]) for f in received]
    noise = [torch.randn(CLASSES, settings.rank, generator=source, dtype=torch.float64) for _ in xs]
    seen = [unit(member.T @ x + sigma * n) for x, n in zip(xs, noise, strict=True)]
    scores = [torch.stack([x @ mu.T for x, mu in zip(xs, seen, strict=True)]).sum(0)]
    a, sums = torch.cat(xs, 1), torch.cat(seen, 1).T * (rows / CLASSES)
    scores += [ridge_solution(a, sums, c * largest(a)) for c in STRENGTHS]
    return torch.stack([(s.argmax(1) == labels).double().mean() for s in scores])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sigma", default="4,7,8,10")
    parser.add_argument("--parties", type=int, default=3)
    parser.add_argument("--rows", type=int, default=200)
    parser.add_argument("--runs", type=int, default=1500)
    parser.add_argument(
        "--together", type=int, default=15, help="runs in one figure of the protocol"
    )
    given = parser.parse_args()
    torch.set_num_threads(1)
    for structured in (False, True):
        for sigma in map(float, given.sigma.split(",")):
            settings = PrivacySettings(prototype_noise=sigma, class_noise=0.2, releases=1)
            source = torch.Generator().manual_seed(0)
            runs = [
                one_run(settings, given.rows, given.parties, structured, source)
                for _ in range(given.runs)
            ]
            accuracies = torch.stack(runs)  # (runs, attacks)
            best = int(accuracies.mean(0).argmax())
            half = 1.96 * float(accuracies[:, best].std()) / math.sqrt(len(accuracies))
            figures = torch.stack([part.mean(0).max() for part in accuracies.split(given.together)])
            true = settings.sigma(given.rows, CLASSES)
            proven = bounds.guess(math.sqrt(given.parties) / true, CLASSES)
            above, mean = float((figures > 0.15).double().mean()), float(figures.mean())
            print(
                f"{'class structure' if structured else 'no structure':16} sigma {true:g}, "
                f"{given.parties} parties: "
                f"proven {100 * proven:.2f} %, found {100 * float(accuracies[:, best].mean()):.2f} ± "
                f"{100 * half:.2f} %; "
                f"figures of {given.together} runs: {100 * mean:.2f} %, above 15 % in "
                f"{100 * above:.0f} %",
                flush=True,
            )


if __name__ == "__main__":
    main()
