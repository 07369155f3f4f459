# /// stoilo-case
# idea = "losses"
# level = "tensor"
# ///
"""Each loss of nn.functional, its value and the gradient it sends back."""
import torch
import torch.nn as nn
import torch.nn.functional as F


def run(kwargs):
    torch.manual_seed(5)
    logits, classes = torch.randn(6, 4), torch.tensor([0, 1, 2, 3, 1, 0])
    real, other = torch.randn(6, 4), torch.randn(6, 4)
    signs = torch.tensor([1.0, -1, 1, -1, 1, -1])
    losses = {
        "cross_entropy": lambda x: F.cross_entropy(x, classes, weight=torch.rand(4)),
        "smoothed": lambda x: F.cross_entropy(x, classes, label_smoothing=0.2),
        "nll": lambda x: F.nll_loss(F.log_softmax(x, -1), classes),
        "bce": lambda x: F.binary_cross_entropy_with_logits(x, (real > 0).float()),
        "bce2": lambda x: F.binary_cross_entropy(torch.sigmoid(x), real.sigmoid()),
        "mse": lambda x: F.mse_loss(x, real),
        "l1": lambda x: F.l1_loss(x, real, reduction="sum"),
        "smooth": lambda x: F.smooth_l1_loss(x, real, beta=0.5),
        "huber": lambda x: F.huber_loss(x, real, delta=0.7),
        "kl": lambda x: F.kl_div(F.log_softmax(x, 1), F.softmax(real, 1), reduction="batchmean"),
        "poisson": lambda x: F.poisson_nll_loss(x, real.abs()),
        "gaussian": lambda x: F.gaussian_nll_loss(x, real, other.exp()),
        "hinge": lambda x: F.hinge_embedding_loss(x, signs[:, None].expand(6, 4)),
        "margin": lambda x: F.multi_margin_loss(x, classes),
        "multilabel": lambda x: F.multilabel_soft_margin_loss(x, (real > 0).float()),
        "cosine": lambda x: F.cosine_embedding_loss(x, real, signs, margin=0.1),
        "triplet": lambda x: F.triplet_margin_loss(x, real, other, margin=1.0, p=2),
        "ranking": lambda x: F.margin_ranking_loss(x[:, 0], x[:, 1], signs),
        "soft": lambda x: F.soft_margin_loss(x[:, 0], signs),
        "ctc": lambda x: F.ctc_loss(
            F.log_softmax(x[:, None], -1), torch.tensor([[1, 2]]), torch.tensor([6]), torch.tensor([2])
        ),
        "focal": lambda x: ((1 - x.softmax(-1)) ** 2 * -x.log_softmax(-1))[range(6), classes].mean(),
        "module": nn.CrossEntropyLoss(reduction="none"),
    }
    results = {}
    for name, loss in losses.items():
        x = logits.clone().requires_grad_()
        value = loss(x, classes) if isinstance(loss, nn.Module) else loss(x)
        value.sum().backward()
        results[name] = (value.detach(), x.grad)
    activations = [
        F.relu, F.gelu, F.silu, F.elu, F.leaky_relu, F.softplus, F.mish, F.hardtanh, F.relu6,
        F.softsign, F.tanhshrink, F.logsigmoid, F.hardswish, F.selu, F.celu, torch.tanh,
    ]
    results["activations"] = torch.stack([activation(logits) for activation in activations])
    results["pairs"] = F.pairwise_distance(real, other), F.cosine_similarity(real, other), torch.cdist(real, other)
    return results
