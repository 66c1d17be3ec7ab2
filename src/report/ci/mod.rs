//! Findings for what runs tests: annotations of a workflow on GitHub, SARIF, JUnit. All print what [`remark`] makes of the one
//! judgement.

mod github;
mod junit;
mod remark;
mod sarif;

pub use github::write as github;
pub use junit::write as junit;
pub use sarif::write as sarif;
