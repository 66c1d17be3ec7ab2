//! Counts and sizes as every judgement and every report writes them.

pub use crate::event::thousands;

/// `1 block`, `2 blocks`, `3 microbatches`, `4 entries`.
pub fn plural(n: u64, noun: &str) -> String {
    format!("{} {}", thousands(n), numbered(n, noun))
}

/// The noun alone, as it stands after this number: `block` after 1, else `blocks`.
pub fn numbered(n: u64, noun: &str) -> String {
    if n == 1 { noun.to_owned() } else { many(noun) }
}

/// `blocks`, `microbatches`, `processes`, `entries`.
pub(super) fn many(noun: &str) -> String {
    match noun.strip_suffix("ry") {
        Some(stem) => format!("{stem}ries"),
        None if noun.ends_with("ch") || noun.ends_with('s') => format!("{noun}es"),
        None => format!("{noun}s"),
    }
}

const KIB: f64 = 1024.0;
const MIB: f64 = 1024.0 * KIB;
const GIB: f64 = 1024.0 * MIB;
const TIB: f64 = 1024.0 * GIB;

/// `512 bytes`, `14.5 KiB`, `285 MiB`, `17.4 GiB`: three digits that mean something. Every judgement and every report
/// writes sizes with this.
pub fn size(bytes: u64) -> String {
    size_f(bytes as f64)
}

/// The same for a rate, which may be fractional or negative.
pub fn size_f(bytes: f64) -> String {
    let a = bytes.abs();
    // The limits lie where rounding would otherwise print "1024 MiB".
    let (value, unit) = match a {
        a if a < 1023.5 => {
            let n = bytes.round();
            return format!("{}{}", if n < 0.0 { "-" } else { "" }, plural(n.abs() as u64, "byte"));
        }
        a if a < 1023.5 * KIB => (bytes / KIB, "KiB"),
        a if a < 1023.5 * MIB => (bytes / MIB, "MiB"),
        a if a < 1023.5 * GIB => (bytes / GIB, "GiB"),
        _ => (bytes / TIB, "TiB"),
    };
    let digits = usize::from(value.abs() < 99.95);
    let text = format!("{value:.digits$}");
    // "32 MiB" is what people write for exactly 32 MiB; in GiB the decimal is what makes figures comparable.
    let text = if unit != "GiB" { text.strip_suffix(".0").unwrap_or(&text).to_owned() } else { text };
    format!("{text} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_as_people_write_them() {
        assert_eq!(
            [thousands(0), thousands(999), thousands(1_000), thousands(1_234_567)],
            ["0", "999", "1,000", "1,234,567"].map(String::from)
        );
        for (n, noun, words) in [
            (1, "step", "1 step"),
            (1859, "block", "1,859 blocks"),
            (2, "microbatch", "2 microbatches"),
            (0, "entry", "0 entries"),
            (3, "process", "3 processes"),
        ] {
            assert_eq!(plural(n, noun), words);
        }
    }

    #[test]
    fn sizes_read_as_people_write_them() {
        for (bytes, text) in [
            (0, "0 bytes"),
            (1, "1 byte"),
            (512, "512 bytes"),
            (1024, "1 KiB"),
            (14848, "14.5 KiB"),
            (1 << 20, "1 MiB"),
            (299_000_000, "285 MiB"),
            ((1 << 30) - 1, "1.0 GiB"),
            (1 << 30, "1.0 GiB"),
            (18_683_110_195, "17.4 GiB"),
            (150_000_000_000, "140 GiB"),
            (1 << 41, "2 TiB"),
        ] {
            assert_eq!(size(bytes), text, "{bytes}");
        }
        assert_eq!(size_f(-1048576.0), "-1 MiB");
        assert_eq!(size_f(0.4), "0 bytes");
    }
}
