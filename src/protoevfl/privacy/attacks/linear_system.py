"""Linear system: a prototype is a class mean of rows the attacker itself sent, so the labels solve
equations.

    sum_n W_nz f_n = n_z mu_z  for every class z        W (N, Z) one-hot and unknown, f and mu known

d equations a class and round. W is relaxed to the simplex and solved by projected gradients over
all rounds (and all colluding parties) at once; class counts come from sum_z n_z mu_z = sum_n f_n. A
running sum of prototypes is first differenced: the rule and its rate are public. Against noise, the
ridge solution W = A (A^T A + c I)^-1 S at several c: from exact solving to the matched filter.
Needs no known label; the ones there are stay fixed.
"""

from itertools import pairwise

import torch
from torch import Tensor

from protoevfl.core.transport import unit
from protoevfl.privacy.defences.release import space
from protoevfl.privacy.learners import largest, memberships
from protoevfl.privacy.view import Guess, Known, Release, View

STRENGTHS = (1e-4, 1e-2, 1.0)  # c, in units of the largest eigenvalue of A^T A


def linear_system(view: View, known: Known) -> dict[str, Guess]:
    """Guesses from the first message, and from all of them where there are several."""
    releases = fresh(view)
    if not releases:
        return {}
    guesses = {}
    stages = (
        {"first message": releases[:1], "all messages": releases}
        if len(releases) > 1
        else {"first message": releases}
    )
    for stage, part in stages.items():
        for name, w in solutions(*equations(part, view.rank), known).items():
            guesses[f"linear system, {name}, {stage}"] = Guess(w.argmax(1))
    return guesses


def fresh(view: View) -> list[Release]:
    """Releases with running sums differenced and repeated ones left out, party by party."""
    news: list[Release] = []
    for party in view.parties:
        releases = view.of(party).releases()
        news += releases[:1]
        for before, now in pairwise(releases):
            if not torch.equal(before.mu, now.mu):
                news.append(
                    Release(
                        party,
                        now.f,
                        differenced(before.mu, now.mu, view.update, view.rho),
                        now.present,
                    )
                )
    return news


def differenced(before: Tensor, now: Tensor, update: str, rho: float) -> Tensor:
    """The class means that turned one set of prototypes into the next."""
    match update:
        case "paper":
            moved = now - before
        case "ema":
            moved = now - (1 - rho) * before
        case _:
            return now
    return moved / rho


def equations(releases: list[Release], rank: int | None) -> tuple[Tensor, Tensor]:
    """The system A^T W = S, A (N, D), S (D, Z); with a rank: of unit rows in the leading
    directions, as released."""
    parts = [(r.f, r.mu) if rank is None else _projected(r, rank) for r in releases]
    a = torch.cat([x for x, _ in parts], 1)
    return a, torch.cat([(mu * class_sizes(x, mu)[:, None]).T for x, mu in parts])


def _projected(release: Release, rank: int) -> tuple[Tensor, Tensor]:
    mean, basis, _ = space(release.f, min(rank, release.f.shape[1], len(release.f)))
    x = unit((release.f - mean) @ basis)
    return x, unit((release.mu - mean) @ basis)


def class_sizes(f: Tensor, mu: Tensor) -> Tensor:
    """n_z >= 0 with sum_z n_z mu_z = sum_n f_n, drawn a little towards equal sizes; (Z,)."""
    z, n = len(mu), len(f)
    # an owner that says nothing: equal sizes
    scale = torch.linalg.matrix_norm(mu, 2).clamp(min=1e-6) ** 2
    gram = mu @ mu.T + 1e-4 * scale * torch.eye(z, dtype=mu.dtype, device=mu.device)
    right = mu @ f.sum(0) + 1e-4 * scale * (n / z)
    sizes: Tensor = torch.linalg.solve(gram, right).clamp(min=0.2 * n / z, max=5.0 * n / z)
    scaled: Tensor = sizes * (n / sizes.sum())
    return scaled


def solutions(a: Tensor, sums: Tensor, known: Known) -> dict[str, Tensor]:
    """W (N, Z) by several solvers; labels that are known leave the equations."""
    n, z = len(a), sums.shape[1]
    fixed = known.labels.to(a.device)
    mask = (fixed < 0)[:, None]
    rest = sums - torch.where(mask, 0.0, a).T @ torch.nn.functional.one_hot(
        fixed.clamp(min=0), z
    ).to(a)
    free = torch.where(mask, a, 0.0)
    top = largest(free).clamp(min=1e-12)
    by_solver = {f"ridge {c:g}": ridge_solution(free, rest, c * top) for c in STRENGTHS}
    start = torch.full((n, z), 1 / z, dtype=a.dtype, device=a.device)
    relaxed = memberships(a, sums, fixed, start)
    by_solver["simplex"] = relaxed
    push = 0.2 * float(free.square().sum(0).mean())
    by_solver["corners"] = memberships(a, sums, fixed, relaxed, steps=300, push=push)
    return by_solver


def ridge_solution(a: Tensor, sums: Tensor, c: Tensor) -> Tensor:
    """A (A^T A + c I)^-1 S = (A A^T + c I)^-1 A S (N, Z), by the smaller of the two systems."""
    n, d = a.shape
    eye = torch.eye(min(n, d), dtype=a.dtype, device=a.device)
    w: Tensor = (
        a @ torch.linalg.solve(a.T @ a + c * eye, sums)
        if d <= n
        else torch.linalg.solve(a @ a.T + c * eye, a @ sums)
    )
    return w
