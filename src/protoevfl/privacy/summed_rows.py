"""What a party sums at the sealed level, as whole numbers; the last column counts rows.

    exact sums   z = (x - mean) / spread, clipped at CLIP; FOLDS parts of the shared rows
    noisy sums   u = (C + SHRINK I)^(-1/2) z, its length clipped at its median; one part

Noise hides one row among the others if no row weighs more than another: so u has a bounded length,
and the most typical rows have it. Whitened, its numbers are the ones the score needs: for class means
m of u the direction (C + SHRINK I)^-1 (mu_1 - mu_0) is (C + SHRINK I)^(-1/2) (m_1 - m_0), and the noise
is spread over all directions alike. A row counts as a quarter of its length, so that hiding the counts
costs next to nothing. Noise in every part would cost more than parts are worth: there is one, and the
label owner takes off what a row's own label adds to its score (methods/sealed.py).
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from protoevfl.privacy.encrypted_sums import LARGEST

CLIP = 4.0  # standard deviations
FLOOR = 0.05  # added to a feature's spread: rare categories do not weigh more for being rare
SHRINK = 3.0  # added to the eigenvalues of the covariance of standardised features
FOLDS = 5  # parts of the shared rows that are summed apart, where the sums are exact
COUNT = LARGEST // 4  # what a row counts as in noisy sums
LEAST_SIGNAL = 0.02  # of the noise: what is believed of contrasts that are no longer than noise


def folds_at(sigma: float) -> int:
    """Parts that are summed apart."""
    return 1 if sigma else FOLDS


@dataclass(frozen=True)
class Scale:
    """How features (n, d) of a party become what it sums, learnt from its own rows."""

    mean: Tensor  # (d,)
    spread: Tensor  # (d,)
    # for noisy sums: (C + SHRINK I)^(-1/2), (d, d), the median length of whitened rows, the noise
    root: Tensor | None = None
    length: Tensor | None = None
    sigma: Tensor | None = None

    @classmethod
    def of(cls, own: Tensor, sigma: float) -> "Scale":
        own = own.double()
        exact = cls(own.mean(0), own.std(0) + FLOOR)
        if not sigma:
            return exact
        z = exact.standardised(own)
        # on the CPU: the same on every device
        values, vectors = torch.linalg.eigh(shrunken(covariance(z)).cpu())
        root = (vectors / values.sqrt() @ vectors.T).to(z)
        length = (z @ root).norm(dim=1).median().clamp(min=1e-9)
        return cls(exact.mean, exact.spread, root, length, torch.full_like(length, sigma))

    def standardised(self, features: Tensor) -> Tensor:
        """(n, d), clipped."""
        return ((features.double() - self.mean) / self.spread).clamp(-CLIP, CLIP)

    def levels(self, features: Tensor) -> Tensor:
        """(n, d + 1) int64 in -LARGEST..LARGEST; rounded towards 0, so that no row gets longer."""
        z = self.standardised(features)
        if self.root is None or self.length is None:
            steps = (z * (LARGEST / CLIP)).round().long()
            return torch.cat([steps, torch.ones_like(steps[:, :1])], 1)
        u = z @ self.root
        x = u / u.norm(dim=1, keepdim=True).clamp(min=float(self.length))
        steps = (x * LARGEST).trunc().long()
        return torch.cat([steps, torch.full_like(steps[:, :1], COUNT)], 1)

    def means(self, sums: Tensor) -> tuple[Tensor, Tensor]:
        """Means (..., d) of standardised features and counts (..., 1) from sums (..., d + 1)."""
        if self.root is None or self.length is None:
            counts = sums[..., -1:].double()
            return sums[..., :-1] * (CLIP / LARGEST) / counts.clamp(min=1), counts
        counts = (sums[..., -1:].double() / COUNT).clamp(min=1)  # noise may leave none
        u = sums[..., :-1].double() * (self.length / LARGEST) / counts
        return torch.linalg.solve(self.root, u, left=False), counts

    def believed(self, contrasts: Tensor, per_label: Tensor) -> Tensor:
        """B (d, d): B c is what may be believed of noisy contrasts c, given all contrasts (d, K).

        c = signal + noise, whitened: noise of variance n in every direction, signal of variance
        s L^2, L = C (C + SHRINK I)^-1, because classes differ where rows differ; s from the length
        of the contrasts. B = s L^2 (s L^2 + n I)^-1

        per_label   (K,) how far a label moves a contrast, in rows
        """
        assert self.root is not None
        assert self.length is not None
        assert self.sigma is not None
        whitened = self.root @ contrasts
        one = torch.eye(len(self.root)).to(self.root)
        differ = one - SHRINK * self.root @ self.root
        differ = differ @ differ
        noise = (self.sigma * self.length * per_label).square().mean()
        length = whitened.square().sum(0).mean()
        hidden = len(one) * noise
        signal = (length - hidden).clamp(min=LEAST_SIGNAL * hidden) / differ.trace()
        believed: Tensor = torch.linalg.solve(signal * differ + noise * one, signal * differ)
        return believed

    def own_part(self, z: Tensor) -> Tensor:
        """What rows z (n, d), standardised, add to a noisy sum, as `means` reads it."""
        assert self.root is not None
        assert self.length is not None
        share = (self.length / (z @ self.root).norm(dim=1, keepdim=True)).clamp(max=1)
        part: Tensor = z * share
        return part


def covariance(z: Tensor) -> Tensor:
    """C (d, d) of rows (n, d)."""
    centred = z - z.mean(0)
    return centred.T @ centred / len(z)


def shrunken(covariance: Tensor) -> Tensor:
    """C + SHRINK I."""
    return covariance + SHRINK * torch.eye(
        len(covariance), dtype=covariance.dtype, device=covariance.device
    )
