//! `allocator_settings`: what `PYTORCH_CUDA_ALLOC_CONF` meant to the allocator.

use std::io::{self, Write};

use super::out::Out;

/// Writes what `conf` sets, and the defaults for the rest, as PyTorch 2.11 does. Nothing in it is an error here: torch has
/// accepted it, or the job would not have run.
pub(super) fn write<W: Write>(out: &mut Out<W>, conf: &str) -> io::Result<()> {
    let plain: String = conf.chars().filter(|c| !c.is_whitespace()).collect();
    let set = |key: &str| options(&plain).filter(|o| o.0 == key).last().map(|(_, value)| value);
    let flag = |key: &str| set(key) == Some("True");
    let mib = set("max_split_size_mb").and_then(|v| v.parse::<i64>().ok());
    let threshold = set("garbage_collection_threshold").and_then(|v| v.parse().ok());
    let threads = set("pinned_num_register_threads").and_then(|v| v.parse::<u64>().ok());
    out.dict()?;
    out.key("PYTORCH_CUDA_ALLOC_CONF")?.text(conf)?;
    out.key("max_split_size")?.int(mib.map_or(-1, |mib| mib.saturating_mul(1 << 20)))?;
    out.key("garbage_collection_threshold")?.float(threshold.unwrap_or(0.0))?;
    out.key("expandable_segments")?.bool(flag("expandable_segments"))?;
    out.key("pinned_num_register_threads")?.int(threads.unwrap_or(1))?;
    for key in
        ["release_lock_on_cudamalloc", "pinned_use_cuda_host_register", "graph_capture_record_stream_reuse"]
    {
        out.key(key)?.bool(flag(key))?;
    }
    out.key("roundup_power2_divisions")?.dict()?;
    let mut table = [0; 16];
    let divisions = options(&plain).filter(|o| o.0 == "roundup_power2_divisions");
    divisions.for_each(|(_, value)| roundup(value, &mut table));
    for (i, &divisions) in table.iter().enumerate() {
        out.key(&(1u32 << i).to_string())?.int(divisions)?;
    }
    out.close()?;
    out.close()
}

/// `key:value` pairs, split at commas outside of brackets.
fn options(conf: &str) -> impl Iterator<Item = (&str, &str)> {
    let mut depth = 0;
    conf.split(move |c| {
        match c {
            '[' => depth += 1,
            ']' => depth -= 1,
            _ => {}
        }
        c == ',' && depth == 0
    })
    .filter_map(|o| o.split_once(':'))
}

/// A number for all sizes, or `[256:1,512:2,>:4]` for sizes in MiB from each on.
fn roundup(value: &str, table: &mut [u64; 16]) {
    let Some(list) = value.strip_prefix('[').and_then(|v| v.strip_suffix(']')) else {
        return table.fill(value.parse().unwrap_or(0));
    };
    let mut next = 0;
    for (i, (from, divisions)) in list.split(',').filter_map(|p| p.split_once(':')).enumerate() {
        let divisions = divisions.parse().unwrap_or(0);
        if from == ">" {
            return table[next..].fill(divisions);
        }
        let Ok(mib @ 1..) = from.parse::<u64>() else { continue };
        let at = (mib.ilog2() as usize).min(table.len() - 1);
        if i == 0 {
            table[..at].fill(divisions);
        }
        table[at] = divisions;
        next = at + 1;
    }
}

#[cfg(test)]
mod tests {
    use super::super::out::Language;
    use super::*;
    use serde_json::{Value, json};

    /// What is written of these settings, but for the text itself.
    fn written(conf: &str) -> Value {
        let mut out = Out::new(Vec::new(), Language::Json);
        write(&mut out, conf).unwrap();
        let mut all: Value = serde_json::from_slice(&out.finish().unwrap()).unwrap();
        all["PYTORCH_CUDA_ALLOC_CONF"].take();
        all
    }

    fn table(conf: &str) -> Vec<u64> {
        let all = written(conf);
        let table = all["roundup_power2_divisions"].as_object().unwrap();
        table.values().map(|v| v.as_u64().unwrap()).collect()
    }

    #[test]
    fn nothing_set_means_the_defaults() {
        let s = written("");
        assert_eq!(s["max_split_size"], -1);
        assert_eq!(s["pinned_num_register_threads"], 1);
        assert_eq!(s["expandable_segments"], false);
        assert_eq!(table(""), [0; 16]);
    }

    #[test]
    fn settings_are_read_as_torch_reads_them() {
        let s = written(
            "expandable_segments:True, max_split_size_mb:128,garbage_collection_threshold:0.8,backend:native",
        );
        assert_eq!(s["expandable_segments"], true);
        assert_eq!(s["max_split_size"], 128 << 20);
        assert_eq!(s["garbage_collection_threshold"], json!(0.8));
        assert_eq!(table("roundup_power2_divisions:4"), [4; 16]);
        let conf = "roundup_power2_divisions:[256:1,512:2,1024:4,>:8],release_lock_on_cudamalloc:True";
        assert_eq!(table(conf), [1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 4, 8, 8, 8, 8, 8]);
        assert_eq!(written(conf)["release_lock_on_cudamalloc"], true);
    }

    #[test]
    fn nonsense_changes_nothing() {
        assert_eq!(written("]],:[x:,>,roundup_power2_divisions:[0:1,:"), written(""));
    }
}
