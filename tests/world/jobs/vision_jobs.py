"""vision_jobs.py JOB: torchvision, timm, kornia, segmentation-models-pytorch and vit-pytorch, with models made from their names, never downloaded."""
import seen

torch = seen.start()
from torch import nn


def _fit(model, batch, loss_of, steps=20, optimizer=None, autocast=None, channels_last=False, scaler=False, schedule=None):
    model = model.cuda().train()
    if channels_last:
        model = model.to(memory_format=torch.channels_last)
    optimizer = optimizer(model) if optimizer else torch.optim.SGD(model.parameters(), 1e-3, momentum=0.9)
    schedule, scale = schedule and schedule(optimizer), torch.amp.GradScaler(enabled=scaler)
    losses = []
    for step in range(steps):
        x, y = batch()
        x = x.to(memory_format=torch.channels_last) if channels_last else x
        with torch.autocast("cuda", dtype=autocast or torch.float16, enabled=autocast is not None):
            loss = loss_of(model, x, y)
        optimizer.zero_grad()
        scale.scale(loss).backward()
        scale.step(optimizer)
        scale.update()
        if schedule:
            schedule.step(step + 1)
        losses.append(loss.item())
    return losses


def _images(n=8, size=64, classes=10):
    return lambda: (torch.randn(n, 3, size, size).cuda(), torch.randint(0, classes, (n,)).cuda())


def _entropy(model, x, y):
    return nn.functional.cross_entropy(model(x), y)


def _tv(name, **more):
    import torchvision

    return torchvision.models.get_model(name, weights=None, **more)


def resnet18():
    torch.backends.cudnn.benchmark = True
    return _fit(_tv("resnet18", num_classes=10), _images(), _entropy, channels_last=True, autocast=torch.bfloat16)


def resnet50_fp16():
    return _fit(_tv("resnet50", num_classes=10), _images(4), _entropy, autocast=torch.float16, scaler=True, steps=10)


def mobilenet():
    return _fit(_tv("mobilenet_v3_small", num_classes=10), _images(), _entropy)


def efficientnet():
    torch.backends.cudnn.benchmark = True
    return _fit(_tv("efficientnet_b0", num_classes=10), _images(4), _entropy, steps=10)


def swin():
    return _fit(_tv("swin_t", num_classes=10), _images(2), _entropy, steps=8, autocast=torch.bfloat16)


def video():
    batch = lambda: (torch.randn(2, 3, 8, 32, 32).cuda(), torch.randint(0, 5, (2,)).cuda())
    return _fit(_tv("r3d_18", num_classes=5), batch, _entropy, steps=8)


def deeplab():
    def batch():
        return torch.randn(4, 3, 64, 64).cuda(), torch.randint(0, 5, (4, 64, 64)).cuda()

    model = _tv("deeplabv3_mobilenet_v3_large", num_classes=5, weights_backbone=None)
    return _fit(model, batch, lambda m, x, y: nn.functional.cross_entropy(m(x)["out"], y), steps=10)


def _boxes():
    images = [torch.rand(3, 128, 128).cuda() for _ in range(2)]
    targets = [
        {
            "boxes": torch.tensor([[10.0, 10.0, 60.0, 60.0], [30.0, 40.0, 100.0, 110.0]]).cuda(), "labels": torch.tensor([1, 2]).cuda(),
            "masks": torch.ones(2, 128, 128, dtype=torch.uint8).cuda(),
        }
        for _ in images
    ]
    return images, targets


def _detect(model):
    model, losses = model.cuda().train(), []
    optimizer = torch.optim.SGD(model.parameters(), 1e-4, momentum=0.9)
    for _ in range(10):
        loss = sum(model(*_boxes()).values())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def faster_rcnn():
    return _detect(_tv("fasterrcnn_mobilenet_v3_large_320_fpn", num_classes=4, weights_backbone=None))


def mask_rcnn():
    return _detect(_tv("maskrcnn_resnet50_fpn", num_classes=4, weights_backbone=None, min_size=128, max_size=128))


def retinanet():
    return _detect(_tv("retinanet_resnet50_fpn", num_classes=4, weights_backbone=None, min_size=128, max_size=128))


def _timm(name, **more):
    import timm
    from timm.data import Mixup
    from timm.loss import SoftTargetCrossEntropy
    from timm.optim import create_optimizer_v2
    from timm.scheduler import CosineLRScheduler

    mix, loss = Mixup(mixup_alpha=0.8, cutmix_alpha=1.0, num_classes=10), SoftTargetCrossEntropy()

    def batch():
        return mix(torch.randn(8, 3, 64, 64).cuda(), torch.randint(0, 10, (8,)).cuda())

    made = dict(more)
    optimizer = made.pop("optimizer", "adamw")
    model = timm.create_model(name, pretrained=False, num_classes=10, **made)
    return _fit(
        model, batch, lambda m, x, y: loss(m(x), y), optimizer=lambda m: create_optimizer_v2(m, opt=optimizer, lr=1e-3), schedule=lambda o: CosineLRScheduler(o, 20),
        autocast=torch.bfloat16, steps=16,
    )


def timm_resnet():
    torch.backends.cudnn.benchmark = True
    return _timm("resnet10t", optimizer="lamb")


def timm_vit():
    return _timm("vit_tiny_patch16_224", img_size=64, drop_path_rate=0.1)


def timm_convnext():
    return _timm("convnext_atto", optimizer="sgd")


def timm_mixer():
    return _timm("mixer_s32_224", img_size=64, optimizer="lookahead_adamw")


def timm_ema():
    import timm
    from timm.utils import ModelEmaV3

    model = timm.create_model("resnet10t", num_classes=10).cuda()
    ema = ModelEmaV3(model, decay=0.9)

    def loss_of(m, x, y):
        loss = _entropy(m, x, y)
        ema.update(m)
        return loss

    return _fit(model, _images(), loss_of)


def kornia_augment():
    import kornia.augmentation as K

    augment = nn.Sequential(K.RandomHorizontalFlip(p=0.5), K.RandomAffine(15.0, p=1.0), K.ColorJiggle(0.1, 0.1, 0.1, 0.1), K.RandomErasing())
    net = nn.Sequential(nn.Conv2d(3, 16, 3, 2), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10))
    return _fit(net, _images(), lambda m, x, y: _entropy(m, augment(x.sigmoid()), y))


def kornia_features():
    import kornia

    x = torch.rand(2, 1, 64, 64).cuda()
    seen_so_far = []
    for _ in range(20):
        blurred = kornia.filters.gaussian_blur2d(x, (5, 5), (1.5, 1.5))
        seen_so_far.append((kornia.filters.sobel(blurred).mean() + kornia.feature.harris_response(x, 0.04).mean()).item())
    return seen_so_far


def smp_unet():
    import segmentation_models_pytorch as smp

    model = smp.Unet("resnet18", encoder_weights=None, classes=3)
    loss = smp.losses.DiceLoss("multiclass")
    return _fit(model, lambda: (torch.randn(2, 3, 64, 64).cuda(), torch.randint(0, 3, (2, 64, 64)).cuda()), lambda m, x, y: loss(m(x), y), steps=12)


def vit_plain():
    from vit_pytorch import ViT

    return _fit(ViT(image_size=64, patch_size=16, num_classes=10, dim=64, depth=2, heads=4, mlp_dim=128, dropout=0.1, emb_dropout=0.1), _images(), _entropy)


if __name__ == "__main__":
    run, _ = seen.chosen(seen.every(globals()), __doc__)
    seen.end(run())
