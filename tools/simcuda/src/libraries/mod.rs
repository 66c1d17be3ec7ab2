//! The other CUDA libraries: cuBLAS as far as time goes, cuDNN as far as convolutions' workspaces go, NCCL as far as sizes and streams go, versions, error texts.

pub mod cublas;
pub mod cublaslt;
pub mod cudnn;
pub mod nccl;
pub mod versions;
