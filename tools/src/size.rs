//! Sizes as people write them: `24GiB`, `24G`, `512 MiB`, `1073741824`.

use std::fmt;
use std::str::FromStr;

/// A number of bytes, read from a command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Size(pub(crate) u64);

impl FromStr for Size {
    type Err = String;

    /// Reads a size. `K`, `M`, `G`, `T` and `KiB` … `TiB` count in 1024s, `KB` … `TB` in 1000s, a bare number in bytes.
    fn from_str(text: &str) -> Result<Size, String> {
        let bad = || format!("\"{text}\" is not a size; write it as 24GiB or 512MiB");
        let trimmed = text.trim();
        let digits = trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(trimmed.len());
        let (number, unit) = trimmed.split_at(digits);
        let unit = match unit.trim().to_ascii_lowercase().as_str() {
            "" | "b" => 1,
            "k" | "kib" => 1 << 10,
            "m" | "mib" => 1 << 20,
            "g" | "gib" => 1 << 30,
            "t" | "tib" => 1u64 << 40,
            "kb" => 1_000,
            "mb" => 1_000_000,
            "gb" => 1_000_000_000,
            "tb" => 1_000_000_000_000,
            _ => return Err(bad()),
        };
        let number: f64 = number.parse().map_err(|_| bad())?;
        let bytes = number * unit as f64;
        if bytes < 1.0 || bytes > (1u64 << 50) as f64 {
            return Err(format!("\"{text}\" is not between a byte and a pebibyte"));
        }
        Ok(Size(bytes as u64))
    }
}

/// Parses a size and refuses one below 1 MiB: for a GPU or a recording that is a number whose unit was forgotten.
pub(crate) fn parse_at_least_one_mib(text: &str) -> Result<Size, String> {
    let size: Size = text.parse()?;
    if size.0 < 1 << 20 {
        let has_unit = text.ends_with(|c: char| c.is_alphabetic());
        let why = if has_unit { "is less than 1MiB" } else { "has no unit; write it like 24GiB or 512MiB" };
        return Err(format!("\"{text}\" {why}"));
    }
    Ok(size)
}

impl fmt::Display for Size {
    /// Exactly, in the largest binary unit that divides it: what is printed reads back as the same number.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (shift, unit) in [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")] {
            if self.0 != 0 && self.0 & ((1u64 << shift) - 1) == 0 {
                return write!(f, "{}{unit}", self.0 >> shift);
            }
        }
        write!(f, "{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_people_write_and_prints_what_reads_back() {
        for (text, bytes) in [
            ("24GiB", 24 << 30),
            ("24g", 24 << 30),
            ("1.5 GiB", 3 << 29),
            ("512MB", 512_000_000),
            ("1048577", 1_048_577),
        ] {
            let size: Size = text.parse().unwrap();
            assert_eq!(size.0, bytes, "{text}");
            assert_eq!(size.to_string().parse::<Size>().unwrap(), size);
        }
        for text in ["", "GiB", "24 gallons", "-1", "0", "1e400", "9999999TiB"] {
            assert!(text.parse::<Size>().is_err(), "{text}");
        }
    }
}
