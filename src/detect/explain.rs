//! Words that judgements share.

use super::finding::Finding;

/// 1116 → "1,116".
pub(super) fn number(n: u64) -> String {
    let s = n.to_string();
    let mut out = String::with_capacity(s.len() + s.len() / 3);
    for (i, c) in s.chars().enumerate() {
        if i > 0 && (s.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
}

/// 1 → "1 block", 2 → "2 blocks".
pub(super) fn plural(n: u64, what: &str) -> String {
    format!("{} {what}{}", number(n), if n == 1 { "" } else { "s" })
}

/// Bytes in the unit in which they have one to four digits before the point.
pub(super) fn size(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut v = bytes as f64 / 1024.0;
    let mut unit = 0;
    while v >= 1024.0 && unit + 1 < UNITS.len() {
        v /= 1024.0;
        unit += 1;
    }
    format!("{v:.1} {}", UNITS[unit])
}

/// "this line", "3 lines".
pub(super) fn lines(n: usize) -> String {
    if n == 1 { "this line".to_string() } else { format!("{n} lines") }
}

/// For how many marks the oldest block of a finding has been live.
pub(super) fn oldest(f: &Finding, mark: u32) -> String {
    plural(u64::from(mark.saturating_sub(f.first_step)), f.grain.noun())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_as_people_write_them() {
        assert_eq!(
            [number(0), number(999), number(1_000), number(1_234_567)],
            ["0", "999", "1,000", "1,234,567"].map(String::from)
        );
        assert_eq!((plural(1, "step"), plural(2, "step")), ("1 step".into(), "2 steps".into()));
        assert_eq!(
            (size(512), size(2048), size(3 << 30)),
            ("512 B".into(), "2.0 KiB".into(), "3.0 GiB".into())
        );
    }
}
