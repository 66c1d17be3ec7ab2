//! The door into the job: `libstrandline.so`.
