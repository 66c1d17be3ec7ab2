//! What cuDNN takes for a convolution beside its result.
//!
//! Measured: 10,778 convolutions, thrice each, on an H200, cuDNN 9.19, `cudnn.benchmark` off (`tests/gpu/workspaces.sh`). Its fast kernels want channels last, and
//! as many of them as fill 16 bytes; where tensors lie otherwise, cuDNN copies them, input, weight and result alike, and the copies are the
//! workspace. It differs where the work is too thin for those kernels. Partial sums of other gradients than a weight's (a few percent) are left out.

/// Which of the three is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    Forward,
    /// The gradient of the input.
    Input,
    /// The gradient of the weight.
    Weight,
}

/// A convolution: of `x` (batch, channels, sides) by `w` (channels of `y`, channels of a group of `x`, sides) to `y`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Convolution {
    pub(super) direction: Direction,
    /// Bytes of an element.
    pub(super) width: u64,
    /// Channels lie next to each other.
    pub(super) channels_last: bool,
    pub(super) x: Vec<u64>,
    pub(super) w: Vec<u64>,
    pub(super) y: Vec<u64>,
    /// Each stride is 1 and nothing is padded.
    pub(super) plain: bool,
}

/// Channels from which on the fast kernels are used.
const FEW_CHANNELS: u64 = 8;
/// Positions of the result, of all pictures, up to which gradients of 32 bits are computed without copies.
const FEW_POSITIONS: u64 = 128;
/// Slices in which the gradient of a weight of one by one is summed up, where elements have 16 bits.
const SLICES: u64 = 16;

/// Rows and columns of the part of a weight's gradient that one multiprocessor computes, and how many such parts are computed at once.
const TILE: u64 = 128;
const TILES_AT_ONCE: u64 = 128;

impl Convolution {
    /// Bytes of workspace.
    pub(super) fn workspace(&self) -> u64 {
        let (Some(&channels), Some(&of_group), Some(&out)) = (self.x.get(1), self.w.get(1), self.w.first())
        else {
            return 0;
        };
        if of_group == 0 || self.width > 4 || self.width < 2 {
            return 0;
        }
        let aligned = 16 / self.width;
        let [x, w, y] = self.copies(aligned);
        if channels > of_group {
            let by_channel = of_group == 1 && (!self.channels_last || self.direction == Direction::Forward);
            return if by_channel { 0 } else { x + w + y };
        }
        if self.channels_last {
            let of_x = if channels % aligned == 0 { 0 } else { x };
            let of_y = if out % aligned == 0 { 0 } else { y };
            return if of_x + of_y == 0 { 0 } else { of_x + w + of_y };
        }
        let half = self.width == 2;
        let point = self.w.iter().skip(2).all(|&side| side == 1);
        if point && self.plain {
            return if half && self.direction == Direction::Weight { SLICES * out * channels * 4 } else { 0 };
        }
        let thin = match self.direction {
            Direction::Forward => channels < FEW_CHANNELS,
            Direction::Input => !half && channels < FEW_CHANNELS,
            Direction::Weight => !half && channels < FEW_CHANNELS / 2,
        };
        let positions = self.y.first().copied().unwrap_or(0) * self.y.iter().skip(2).product::<u64>();
        let few = !half && self.direction != Direction::Forward && positions <= FEW_POSITIONS;
        if thin || few { 0 } else { x + w + y + self.partial_sums(aligned) }
    }

    /// Bytes of the sums of 32 bits that the gradient of a weight is added up in, where it has too few tiles for all multiprocessors.
    fn partial_sums(&self, aligned: u64) -> u64 {
        let [out, channels] =
            [0, 1].map(|at| self.w.get(at).map_or(0, |side| side.next_multiple_of(aligned)));
        let of_out = channels * self.w.iter().skip(2).product::<u64>();
        let tiles = out.div_ceil(TILE) * of_out.div_ceil(TILE);
        let enough = if self.width == 2 { TILES_AT_ONCE / 4 } else { TILES_AT_ONCE };
        if self.direction != Direction::Weight || tiles == 0 || tiles >= enough {
            return 0;
        }
        TILES_AT_ONCE / tiles * out * of_out * 4
    }

    /// Bytes of copies of input, weight and result whose channels are multiples of `aligned`.
    fn copies(&self, aligned: u64) -> [u64; 3] {
        let bytes = |shape: &[u64], padded: &[usize]| {
            let sides = shape.iter().enumerate();
            sides
                .map(|(at, &side)| if padded.contains(&at) { side.next_multiple_of(aligned) } else { side })
                .product::<u64>()
                * self.width
        };
        [bytes(&self.x, &[1]), bytes(&self.w, &[0, 1]), bytes(&self.y, &[1])]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn convolution(direction: Direction, width: u64, x: [u64; 4], w: [u64; 4], y: [u64; 2]) -> Convolution {
        let y = vec![x[0], w[0], y[0], y[1]];
        Convolution { direction, width, channels_last: false, x: x.to_vec(), w: w.to_vec(), y, plain: false }
    }

    #[test]
    fn layers_of_a_generator_take_what_they_took_on_an_h200() {
        use Direction::{Forward, Input, Weight};
        for (direction, width, x, w, y, mib) in [
            (Forward, 4, [2048, 512, 8, 8], [1024, 512, 4, 4], [4, 4], 416),
            (Input, 4, [2048, 128, 32, 32], [256, 128, 4, 4], [16, 16], 1538),
            (Weight, 4, [2048, 256, 16, 16], [512, 256, 4, 4], [8, 8], 776),
            (Input, 4, [2048, 3, 128, 128], [64, 3, 4, 4], [64, 64], 0),
        ] {
            assert_eq!(convolution(direction, width, x, w, y).workspace(), mib * MIB, "{direction:?} {x:?}");
        }
        let of_unet = convolution(Input, 2, [16, 512, 64, 64], [512, 512, 3, 3], [64, 64]);
        assert_eq!(of_unet.workspace(), 64 * MIB * 2 + 4 * MIB + MIB / 2);
    }

    #[test]
    fn channels_last_is_not_copied_unless_channels_are_odd() {
        let mut convolution = convolution(Direction::Forward, 2, [8, 64, 32, 32], [128, 64, 3, 3], [32, 32]);
        convolution.channels_last = true;
        assert_eq!(convolution.workspace(), 0);
        convolution.x[1] = 3;
        convolution.w[1] = 3;
        assert_eq!(convolution.workspace(), (8 * 8 * 32 * 32 + 128 * 8 * 9) * 2);
    }

    #[test]
    fn what_is_thin_needs_no_copies() {
        let mut point = convolution(Direction::Forward, 2, [16, 256, 64, 64], [512, 256, 1, 1], [64, 64]);
        point.plain = true;
        assert_eq!(point.workspace(), 0);
        point.direction = Direction::Weight;
        assert_eq!(point.workspace(), 8 * MIB);
        let depthwise = convolution(Direction::Forward, 4, [8, 64, 32, 32], [64, 1, 3, 3], [32, 32]);
        assert_eq!(depthwise.workspace(), 0);
    }
}
