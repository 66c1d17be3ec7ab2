//! What torch's allocator may take of a device: all of it, or less where the job was told so.

use super::Replay;
use crate::event::{Bytes, DeviceId};
use serde_json::Value;

impl Replay {
    /// Bytes that torch may reserve of a device, where the job limits itself: by `torch.cuda.set_per_process_memory_fraction`,
    /// as the recorder saw it called, or by `per_process_memory_fraction` in the allocator's settings. `None`: no limit was seen,
    /// or the device's size is not known.
    pub fn limit(&self, device: DeviceId) -> Option<Bytes> {
        let fact = device_fact(self.meta(), device);
        let conf = || self.meta()["alloc_conf"].as_str().and_then(in_settings);
        let fraction = fact["memory_fraction"].as_f64().or_else(conf).filter(|f| (0.0..1.0).contains(f))?;
        let total = match self.device(device).and_then(|d| d.capacity) {
            Some(c) => c.total.0,
            None => fact["capacity_bytes"].as_u64()?,
        };
        // As torch computes it.
        Some(Bytes((fraction * total as f64) as u64))
    }

    /// From now on, as if this process could have so many bytes of each device: of a card that the job has not run on.
    pub fn suppose_usable(&mut self, bytes: Bytes) {
        self.supposed = Some(bytes);
    }

    /// Bytes of a device that this process can have: what others leave of it, and no more than it is allowed.
    pub fn usable(&self, device: DeviceId) -> Option<Bytes> {
        if self.supposed.is_some() {
            return self.supposed;
        }
        let c = self.device(device)?.capacity?;
        let left = c.total.0.saturating_sub(c.others.0);
        Some(Bytes(self.limit(device).map_or(left, |limit| limit.0.min(left))))
    }
}

/// What a process's facts say of a device; null: nothing.
pub(crate) fn device_fact(facts: &Value, device: DeviceId) -> &Value {
    let mut all = facts["devices"].as_array().into_iter().flatten();
    all.find(|d| d["index"].as_u64() == Some(device.0.into())).unwrap_or(&Value::Null)
}

/// The fraction that `PYTORCH_CUDA_ALLOC_CONF` sets (torch 2.10 and newer), the last one where there are several.
fn in_settings(conf: &str) -> Option<f64> {
    let mut settings = conf.split(',').filter_map(|s| s.split_once(':'));
    settings.rfind(|(key, _)| key.trim() == "per_process_memory_fraction")?.1.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Item, Names};
    use serde_json::json;

    fn limit(facts: Value) -> Option<u64> {
        let mut replay = Replay::new();
        replay.apply(&Item::Meta(facts), &Names::default());
        replay.limit(DeviceId(1)).map(|b| b.0)
    }

    #[test]
    fn what_was_called_goes_before_what_is_set() {
        let conf = "expandable_segments:True, per_process_memory_fraction : 0.5";
        let devices = |fraction: Value| json!([{"index": 0}, {"index": 1, "capacity_bytes": 1000, "memory_fraction": fraction}]);
        assert_eq!(limit(json!({"alloc_conf": conf, "devices": devices(Value::Null)})), Some(500));
        assert_eq!(limit(json!({"alloc_conf": conf, "devices": devices(json!(0.25))})), Some(250));
        assert_eq!(
            limit(json!({"alloc_conf": conf, "devices": devices(json!(1.0))})),
            None,
            "all of it again"
        );
        assert_eq!(limit(json!({"alloc_conf": conf})), None, "of a device whose size is not known");
        assert_eq!(
            limit(json!({"alloc_conf": "per_process_memory_fraction", "devices": devices(Value::Null)})),
            None
        );
    }
}
