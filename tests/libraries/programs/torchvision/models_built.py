"""Models of torchvision: built inside the task, run forwards, trained for a step."""

import torch
from torch import nn
from torchvision import models
from torchvision.models import get_model, list_models
from torchvision.models.resnet import BasicBlock, ResNet

torch.set_num_threads(1)


def _logits(model, size=64, channels=3):
    torch.manual_seed(1)
    with torch.no_grad():
        return model.eval()(torch.randn(1, channels, size, size))


def resnet18_forward(args):
    torch.manual_seed(0)
    return _logits(models.resnet18(num_classes=4))


def resnet_step(args):
    torch.manual_seed(0)
    model = models.resnet18(weights=None, num_classes=10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    images, labels = torch.randn(4, 3, 32, 32), torch.tensor([0, 1, 2, 3])
    losses = []
    for _ in range(2):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, model.fc.weight.detach()


def small_resnet_of_own_blocks(args):
    torch.manual_seed(0)
    model = ResNet(BasicBlock, [1, 1, 1, 1], num_classes=5, norm_layer=nn.InstanceNorm2d)
    return _logits(model), sum(p.numel() for p in model.parameters())


def changed_first_layer(args):
    torch.manual_seed(0)
    model = models.resnet18(num_classes=10)
    model.conv1 = nn.Conv2d(1, 64, 3, padding=1, bias=False)
    model.maxpool = nn.Identity()
    return _logits(model, 16, channels=1)


def own_class_over_resnet(args):
    class Features(ResNet):
        def forward(self, x):
            return self.avgpool(self.layer1(self.relu(self.bn1(self.conv1(x)))))

    torch.manual_seed(0)
    return _logits(Features(BasicBlock, [1, 1, 1, 1]), 32)


def squeezenet(args):
    torch.manual_seed(0)
    return _logits(models.squeezenet1_1(num_classes=3))


def mobilenets(args):
    torch.manual_seed(0)
    made = [models.mobilenet_v2(num_classes=2), models.mobilenet_v3_small(num_classes=2)]
    return [_logits(model, 32) for model in made]


def shufflenet(args):
    torch.manual_seed(0)
    return _logits(models.shufflenet_v2_x0_5(num_classes=3))


def mnasnet(args):
    torch.manual_seed(0)
    return _logits(models.mnasnet0_5(num_classes=3))


def densenet(args):
    torch.manual_seed(0)
    model = models.DenseNet(growth_rate=4, block_config=(2, 2), num_init_features=8)
    return _logits(model, 32)


def efficientnet(args):
    torch.manual_seed(0)
    return _logits(models.efficientnet_b0(num_classes=3))


def regnet(args):
    torch.manual_seed(0)
    return _logits(models.regnet_x_400mf(num_classes=3), 32)


def convnext(args):
    from torchvision.models.convnext import CNBlockConfig, ConvNeXt

    torch.manual_seed(0)
    return _logits(ConvNeXt([CNBlockConfig(8, 16, 1), CNBlockConfig(16, None, 1)]), 32)


def vision_transformer(args):
    torch.manual_seed(0)
    model = models.VisionTransformer(32, 8, 2, 2, 16, 32, num_classes=3)
    return _logits(model, 32)


def swin_transformer(args):
    torch.manual_seed(0)
    model = models.SwinTransformer([4, 4], 8, [1, 1], [2, 2], [4, 4], num_classes=3)
    return _logits(model, 32)


def googlenet_with_helpers(args):
    torch.manual_seed(0)
    model = models.googlenet(num_classes=3, aux_logits=True, init_weights=False)
    out = model.train()(torch.randn(2, 3, 64, 64))
    return out.logits.detach(), out.aux_logits1.detach()


def model_by_its_name(args):
    torch.manual_seed(0)
    return list_models(include="resnet*")[:3], _logits(get_model("resnet18", num_classes=2), 32)


def state_carried_over(args):
    torch.manual_seed(0)
    first, second = (models.squeezenet1_1(num_classes=2) for _ in range(2))
    second.load_state_dict(first.state_dict())
    return torch.equal(_logits(first, 32), _logits(second, 32))
