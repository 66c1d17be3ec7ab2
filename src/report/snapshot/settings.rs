//! `allocator_settings`: what `PYTORCH_CUDA_ALLOC_CONF` meant to the allocator.

use std::io::{self, Write};

use super::out::Out;

/// Settings as PyTorch 2.11 writes them.
#[derive(Clone, Debug, PartialEq)]
struct Settings {
    max_split_size: i64,
    garbage_collection_threshold: f64,
    expandable_segments: bool,
    pinned_num_register_threads: u64,
    release_lock_on_cudamalloc: bool,
    pinned_use_cuda_host_register: bool,
    graph_capture_record_stream_reuse: bool,
    roundup: [u64; 16],
}

/// Writes what `conf` sets, and the defaults for the rest.
pub(super) fn write<W: Write>(out: &mut Out<W>, conf: &str) -> io::Result<()> {
    let s = parse(conf);
    out.dict()?;
    out.text("PYTORCH_CUDA_ALLOC_CONF")?;
    out.text(conf)?;
    out.text("max_split_size")?;
    out.int(s.max_split_size)?;
    out.text("garbage_collection_threshold")?;
    out.float(s.garbage_collection_threshold)?;
    out.text("expandable_segments")?;
    out.bool(s.expandable_segments)?;
    out.text("pinned_num_register_threads")?;
    out.int(s.pinned_num_register_threads)?;
    out.text("release_lock_on_cudamalloc")?;
    out.bool(s.release_lock_on_cudamalloc)?;
    out.text("pinned_use_cuda_host_register")?;
    out.bool(s.pinned_use_cuda_host_register)?;
    out.text("graph_capture_record_stream_reuse")?;
    out.bool(s.graph_capture_record_stream_reuse)?;
    out.text("roundup_power2_divisions")?;
    out.dict()?;
    for (i, &divisions) in s.roundup.iter().enumerate() {
        out.text(&(1u32 << i).to_string())?;
        out.int(divisions)?;
    }
    out.close()?;
    out.close()
}

/// Reads the variable as torch does, except that nothing in it is an error here: torch has accepted it, or the job
/// would not have run.
fn parse(conf: &str) -> Settings {
    let mut s = Settings {
        max_split_size: -1,
        garbage_collection_threshold: 0.0,
        expandable_segments: false,
        pinned_num_register_threads: 1,
        release_lock_on_cudamalloc: false,
        pinned_use_cuda_host_register: false,
        graph_capture_record_stream_reuse: false,
        roundup: [0; 16],
    };
    let plain: String = conf.chars().filter(|c| !c.is_whitespace()).collect();
    for (key, value) in options(&plain) {
        let flag = value == "True";
        match key {
            "max_split_size_mb" => {
                s.max_split_size = value.parse::<i64>().map_or(-1, |mib| mib.saturating_mul(1 << 20))
            }
            "garbage_collection_threshold" => s.garbage_collection_threshold = value.parse().unwrap_or(0.0),
            "expandable_segments" => s.expandable_segments = flag,
            "pinned_num_register_threads" => s.pinned_num_register_threads = value.parse().unwrap_or(1),
            "release_lock_on_cudamalloc" => s.release_lock_on_cudamalloc = flag,
            "pinned_use_cuda_host_register" => s.pinned_use_cuda_host_register = flag,
            "graph_capture_record_stream_reuse" => s.graph_capture_record_stream_reuse = flag,
            "roundup_power2_divisions" => roundup(value, &mut s.roundup),
            _ => {}
        }
    }
    s
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
    use super::*;

    #[test]
    fn nothing_set_means_the_defaults() {
        let s = parse("");
        assert_eq!((s.max_split_size, s.pinned_num_register_threads, s.expandable_segments), (-1, 1, false));
        assert_eq!(s.roundup, [0; 16]);
    }

    #[test]
    fn settings_are_read_as_torch_reads_them() {
        let s = parse(
            "expandable_segments:True, max_split_size_mb:128,garbage_collection_threshold:0.8,backend:native",
        );
        assert!(s.expandable_segments);
        assert_eq!(s.max_split_size, 128 << 20);
        assert_eq!(s.garbage_collection_threshold, 0.8);
        assert_eq!(parse("roundup_power2_divisions:4").roundup, [4; 16]);
        let s = parse("roundup_power2_divisions:[256:1,512:2,1024:4,>:8],release_lock_on_cudamalloc:True");
        assert_eq!(s.roundup, [1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 4, 8, 8, 8, 8, 8]);
        assert!(s.release_lock_on_cudamalloc);
    }

    #[test]
    fn nonsense_changes_nothing() {
        assert_eq!(parse("]],:[x:,>,roundup_power2_divisions:[0:1,:"), parse(""));
    }
}
