# /// stoilo-case
# idea = "indexing and shapes"
# level = "tensor"
# ///
"""Shapes, masks, gathers, sorts and reductions: what sits between the layers."""
import torch


def run(kwargs):
    torch.manual_seed(9)
    x = torch.randint(0, 10, (4, 5)).float()
    values, order = x.sort(dim=1, descending=True)
    unique, counts = torch.unique(x, return_counts=True)
    windows = x.unfold(1, 3, 1)
    out = {
        "mask": x[x > 5], "where": torch.where(x > 5, x, -x), "gather": x.gather(1, order[:, :2]),
        "sorted": values, "unique": (unique, counts), "windows": windows.mean(-1),
        "roll": x.roll(1, dims=0), "flip": x.flip([0, 1]), "cum": x.cumsum(0), "cummax": x.cummax(1).values,
        "top": x.topk(2).indices, "median": x.median(dim=1).values, "mode": x.mode(dim=1).values,
        "var": torch.var_mean(x, dim=1), "quantile": x.quantile(torch.tensor([0.25, 0.75])),
        "hist": torch.histc(x, 5, 0, 10), "bins": torch.bucketize(x, torch.tensor([3.0, 6.0])),
        "count": torch.bincount(x.flatten().long(), minlength=10), "any": (x == 0).any(1), "all": (x >= 0).all(),
        "stack": torch.stack([x, x]).permute(1, 0, 2).shape, "chunks": [c.shape[1] for c in x.split([2, 3], dim=1)],
        "scatter": torch.zeros(4, 10).scatter_(1, x.long(), 1.0), "take": x.take(torch.tensor([0, 7])),
        "index": x.index_select(1, torch.tensor([4, 0])), "fill": x.masked_fill(x > 8, float("nan")).isnan().sum(),
        "outer": torch.outer(torch.arange(3), torch.arange(3)), "trace": torch.trace(x[:4, :4]),
        "tri": torch.tril_indices(3, 3), "cross": torch.linalg.cross(x[:3, :3], torch.eye(3)),
        "clamp": x.clamp_(min=2).min(), "inplace": x.add_(1).mul_(2).sub_(0.5).div_(3).sum(),
        "lerp": torch.lerp(x, x * 2, 0.5).mean(), "round": (x / 3).round(decimals=2), "fmod": x % 3,
        "logsumexp": x.logsumexp(1), "erf": torch.erf(x / 10).sum(), "special": torch.special.expit(x[0]),
        "lgamma": torch.lgamma(x[0]), "xlogy": torch.special.xlogy(x[0], x[0]), "angle": torch.atan2(x[0], x[1]),
        "vander": torch.vander(torch.arange(3)), "combos": torch.combinations(torch.arange(3)),
        "product": torch.cartesian_prod(torch.arange(2), torch.arange(2)), "repeat": x[0].repeat_interleave(2),
        "tile": x[:1, :1].tile(2, 2), "broadcast": (x[:, None] - x[None]).abs().sum(-1), "searched":
        torch.searchsorted(torch.tensor([1.0, 3.0]), x[0]), "movedim": x[None].movedim(0, 1).shape,
        "newaxis": x[..., None].size(), "ellipsis": x[..., -1], "step": x[::2, ::-1 if False else 2],
    }
    x[0], x[1, 1:3] = 7.0, torch.tensor([8.0, 9.0])
    x[x == 7] += 1
    out["assigned"] = x
    return {key: list(value) if isinstance(value, torch.Size) else value for key, value in out.items()}
