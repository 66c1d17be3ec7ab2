//! Python's `random.Random(seed)`, draw for draw (Mersenne Twister): the jobs of `tests/leakbench/synthetic.py` without
//! Python.

const N: usize = 624;

/// A generator in the state that Python's has after the same calls.
pub(crate) struct Random {
    state: [u32; N],
    at: usize,
}

impl Random {
    /// `random.Random(seed)`.
    pub(crate) fn new(seed: u64) -> Random {
        let mut s = [0u32; N];
        s[0] = 19_650_218;
        for i in 1..N {
            s[i] = (s[i - 1] ^ (s[i - 1] >> 30)).wrapping_mul(1_812_433_253).wrapping_add(i as u32);
        }
        let high = (seed >> 32) as u32;
        let key = &[seed as u32, high][..if high > 0 { 2 } else { 1 }];
        let (mut i, mut j) = (1, 0);
        let next = |s: &mut [u32; N], i: &mut usize| {
            *i += 1;
            if *i == N {
                s[0] = s[N - 1];
                *i = 1;
            }
        };
        for _ in 0..N {
            let before = s[i - 1] ^ (s[i - 1] >> 30);
            s[i] = (s[i] ^ before.wrapping_mul(1_664_525)).wrapping_add(key[j]).wrapping_add(j as u32);
            j = (j + 1) % key.len();
            next(&mut s, &mut i);
        }
        for _ in 1..N {
            let before = s[i - 1] ^ (s[i - 1] >> 30);
            s[i] = (s[i] ^ before.wrapping_mul(1_566_083_941)).wrapping_sub(i as u32);
            next(&mut s, &mut i);
        }
        s[0] = 1 << 31;
        Random { state: s, at: N }
    }

    fn word(&mut self) -> u32 {
        if self.at == N {
            for i in 0..N {
                let y = (self.state[i] & (1 << 31)) | (self.state[(i + 1) % N] & !(1 << 31));
                let odd = if y & 1 == 1 { 0x9908_b0df } else { 0 };
                self.state[i] = self.state[(i + 397) % N] ^ (y >> 1) ^ odd;
            }
            self.at = 0;
        }
        let mut y = self.state[self.at];
        self.at += 1;
        y ^= y >> 11;
        y ^= (y << 7) & 0x9d2c_5680;
        y ^= (y << 15) & 0xefc6_0000;
        y ^ (y >> 18)
    }

    /// `random()`: 0 ≤ x < 1.
    pub(crate) fn unit(&mut self) -> f64 {
        let (a, b) = (self.word() >> 5, self.word() >> 6);
        (f64::from(a) * 67_108_864.0 + f64::from(b)) / 9_007_199_254_740_992.0
    }

    pub(crate) fn below(&mut self, n: u32) -> u32 {
        let bits = 32 - n.leading_zeros();
        loop {
            let r = self.word() >> (32 - bits);
            if r < n {
                return r;
            }
        }
    }

    /// `randint(low, high)`: both ends included, less than 2^32 - 1 apart.
    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + u64::from(self.below((high - low + 1) as u32))
    }

    /// `uniform(low, high)`.
    pub(crate) fn uniform(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.unit()
    }

    /// `choice(of)`.
    pub(crate) fn choice<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u32) as usize]
    }

    /// `random() < p`.
    pub(crate) fn yes(&mut self, p: f64) -> bool {
        self.unit() < p
    }

    /// `expovariate(rate)`.
    pub(crate) fn exponential(&mut self, rate: f64) -> f64 {
        -(1.0 - self.unit()).ln() / rate
    }
}

/// The first numbers of `random.Random(1)` and of a seed beyond 32 bits, as CPython prints them.
#[test]
fn numbers_are_those_that_python_draws() {
    let mut r = Random::new(1);
    assert_eq!([r.unit(), r.unit()], [0.13436424411240122, 0.8474337369372327]);
    let of = |seed| Random::new(seed).unit();
    assert_eq!((of(0), of(5_000_000_007)), (0.8444218515250481, 0.47411569263517506));
}
