//! Why allocations fail, and what helps against each.

use crate::event::named;

named! {
    /// What an allocation failed of.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Cause {
        /// The card had room; torch was not allowed to take it.
        Limit = "limit",
        /// Other processes, or libraries in this one, hold what was missing.
        Outside = "other-processes",
        /// Enough was free in torch's cache, but in pieces.
        Fragmentation = "fragmentation",
        /// Enough was freed, but waits for a stream.
        Waiting = "deferred-free",
        /// One request is more than the card has, or than all that a step needs together many times over.
        Request = "one-request",
        /// This step needed much more than the steps before.
        Batch = "batch",
        /// Steps needed more and more.
        Rising = "rising-peak",
        /// The last step was long over: what the job did then has no steps.
        AfterSteps = "after-steps",
        /// The optimizer made its state, and it does not fit.
        Optimizer = "optimizer-state",
        /// No step had begun: what the job loads for all of them does not fit.
        Loading = "loading",
        /// Evaluation needs more than training.
        Evaluation = "evaluation",
        /// The job is larger than the device.
        Full = "full",
    }
}

impl Cause {
    /// What helps, in one sentence without a full stop.
    pub fn remedy(self) -> &'static str {
        match self {
            Cause::Limit => {
                "raise the limit: torch.cuda.set_per_process_memory_fraction, or the server's own setting, such as vLLM's gpu_memory_utilization"
            }
            Cause::Outside => {
                "nvidia-smi lists the other processes on this GPU: stop them, or choose another GPU with CUDA_VISIBLE_DEVICES"
            }
            Cause::Fragmentation => {
                "start the job with PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, so that PyTorch can join the free pieces"
            }
            Cause::Waiting => {
                "call synchronize() every few steps on the stream that the freed memory waits for, or use wait_stream() instead of record_stream()"
            }
            Cause::Request => {
                "check the sizes of the tensors at the line that requested it: a shape, an index or a dtype may be wrong"
            }
            Cause::Batch => {
                "limit the size of a batch (for text, limit tokens instead of rows), or sort samples by length into buckets"
            }
            Cause::Rising => {
                "find the input that gets longer with each step (a sequence, a prompt, a history), or the work that is repeated more often (a hook registered again), and limit it"
            }
            Cause::AfterSteps => {
                "call strandline.step() after each request or batch in that part of the job, or record that part alone: then the report names the line that grows"
            }
            Cause::Optimizer => {
                "use an 8-bit optimizer, or shard its state (ZeRO, FSDP); foreach=False avoids its temporary copies"
            }
            Cause::Loading => {
                "load the model in a smaller type (torch.bfloat16, or 8 or 4 bits), keep part of it on the CPU (device_map=\"auto\"), or shard it across several GPUs (FSDP)"
            }
            Cause::Evaluation => {
                "evaluate smaller batches, and move each batch's predictions to the CPU (.cpu(); eval_accumulation_steps in transformers)"
            }
            Cause::Full => "use a smaller batch with gradient accumulation, or activation checkpointing",
        }
    }
}
