//! Holds the library down to the symbols of glibc 2.28, whatever glibc it is built on.
//!
//! Symbols that moved from libpthread and libdl into libc with 2.34 are asked for under the version they have always had;
//! `build.rs` names those two libraries as needed, for systems on which they are still apart. Names that did not exist in
//! 2.28 get a definition of our own, hidden in this library. This works because the whole library, the standard library
//! included, is one object (`lto = "fat"`, one codegen unit): a `.symver` holds for its whole assembly. The law test reads
//! the result.

#[cfg(strandline_floor)]
use core::arch::global_asm;

#[cfg(strandline_floor)]
macro_rules! old_versions {
    ($($symbol:literal @ $version:literal,)*) => {
        global_asm!($(concat!(".symver ", $symbol, ",", $symbol, "@", $version),)*);
    };
}

#[cfg(strandline_floor)]
old_versions! {
    "dlvsym" @ "GLIBC_2.2.5",
    "dladdr" @ "GLIBC_2.2.5",
    "dlopen" @ "GLIBC_2.2.5",
    "dlerror" @ "GLIBC_2.2.5",
    "dlclose" @ "GLIBC_2.2.5",
    "pthread_create" @ "GLIBC_2.2.5",
    "pthread_detach" @ "GLIBC_2.2.5",
    "pthread_join" @ "GLIBC_2.2.5",
    "pthread_attr_setstacksize" @ "GLIBC_2.2.5",
    "pthread_getattr_np" @ "GLIBC_2.2.5",
    "pthread_attr_getstack" @ "GLIBC_2.2.5",
    "pthread_key_create" @ "GLIBC_2.2.5",
    "pthread_key_delete" @ "GLIBC_2.2.5",
    "pthread_setspecific" @ "GLIBC_2.2.5",
    "pthread_getspecific" @ "GLIBC_2.2.5",
    "pthread_setname_np" @ "GLIBC_2.12",
    "pthread_sigmask" @ "GLIBC_2.2.5",
}

// `stat64`, `fstat64`, `fstat` (the same structure) and `fstatat64` are symbols since 2.33; before, headers called others with the
// structure's version, which is 1 on x86-64. `gettid` is a symbol since 2.30; it is system call 186.
#[cfg(strandline_floor)]
global_asm!(
    ".macro strandline_stat name, real",
    ".hidden \\name",
    ".globl \\name",
    ".type \\name,@function",
    "\\name:",
    "endbr64",
    "mov rdx, rsi",
    "mov rsi, rdi",
    "mov edi, 1",
    "jmp \\real@PLT",
    ".size \\name, . - \\name",
    ".endm",
    "strandline_stat stat64, __xstat64",
    "strandline_stat lstat64, __lxstat64",
    "strandline_stat fstat64, __fxstat64",
    "strandline_stat fstat, __fxstat64",
    ".purgem strandline_stat",
    ".hidden fstatat64",
    ".globl fstatat64",
    ".type fstatat64,@function",
    "fstatat64:",
    "endbr64",
    "mov r8, rcx",
    "mov rcx, rdx",
    "mov rdx, rsi",
    "mov rsi, rdi",
    "mov edi, 1",
    "jmp __fxstatat64@PLT",
    ".size fstatat64, . - fstatat64",
    ".hidden gettid",
    ".globl gettid",
    ".type gettid,@function",
    "gettid:",
    "endbr64",
    "mov eax, 186",
    "syscall",
    "ret",
    ".size gettid, . - gettid",
);
