"""Operators of detection, blocks of layers."""

import torch
from torch import nn
from torchvision import ops


def _boxes(count=12):
    torch.manual_seed(7)
    corner = torch.rand(count, 2) * 20
    return torch.cat([corner, corner + 1 + torch.rand(count, 2) * 10], 1)


def suppression(args):
    scores = torch.rand(12)
    groups = torch.arange(12) % 3
    boxes = _boxes()
    return ops.nms(boxes, scores, 0.3), ops.batched_nms(boxes, scores, groups, 0.3)


def overlaps(args):
    first, second = _boxes(4), _boxes(5)
    return [
        measure(first, second)
        for measure in (ops.box_iou, ops.generalized_box_iou, ops.distance_box_iou)
    ]


def box_forms(args):
    boxes = _boxes()
    centred = ops.box_convert(boxes, "xyxy", "cxcywh")
    clipped = ops.clip_boxes_to_image(boxes, (15, 15))
    return centred, ops.box_area(clipped), ops.remove_small_boxes(clipped, 3.0)


def losses(args):
    first, second = _boxes(4).requires_grad_(), _boxes(4) + 1
    loss = ops.complete_box_iou_loss(first, second, reduction="mean")
    loss = loss + ops.sigmoid_focal_loss(first, torch.ones(4, 4), reduction="mean")
    loss.backward()
    return loss.detach(), first.grad


def pooled_regions(args):
    torch.manual_seed(1)
    features = torch.randn(1, 2, 16, 16, requires_grad=True)
    rois = [torch.tensor([[0.0, 0.0, 9.0, 9.0], [3.0, 2.0, 12.0, 15.0]])]
    pooled = ops.roi_align(features, rois, (3, 3), sampling_ratio=2, aligned=True)
    pooled.sum().backward()
    return pooled.detach(), features.grad


def blocks(args):
    torch.manual_seed(1)
    x = torch.randn(2, 8, 8, 8)
    block = nn.Sequential(
        ops.Conv2dNormActivation(8, 8, activation_layer=nn.SiLU),
        ops.SqueezeExcitation(8, 4),
        ops.StochasticDepth(0.5, "row"),
        ops.DropBlock2d(0.2, 3),
        ops.Permute([0, 2, 3, 1]),
        ops.MLP(8, [16, 4], norm_layer=nn.LayerNorm),
    )
    return block(x).detach()


def pyramid(args):
    torch.manual_seed(1)
    made = ops.FeaturePyramidNetwork([4, 8], 3)
    levels = {"a": torch.randn(1, 4, 8, 8), "b": torch.randn(1, 8, 4, 4)}
    return {name: value.detach() for name, value in made(levels).items()}


def outlines_of_masks(args):
    masks = torch.zeros(2, 6, 6, dtype=torch.bool)
    masks[0, 1:3, 2:5] = True
    masks[1, 4, :] = True
    return ops.masks_to_boxes(masks)
