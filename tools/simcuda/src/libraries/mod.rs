//! The other CUDA libraries: cuBLAS as far as time goes, versions, error texts.

pub mod cublas;
pub mod cublaslt;
pub mod versions;
