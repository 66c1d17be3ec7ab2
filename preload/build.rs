//! Link flags of `libstrandline.so`, each with its reason.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-check-cfg=cfg(strandline_floor)");
    let mut flags = vec![
        // The name under which tools recognise the library in /proc/PID/maps, wherever it lies.
        "-Wl,-soname,libstrandline.so",
        // Its own calls are bound when it is loaded: a first call never enters the loader from a hook.
        "-Wl,-z,now",
        // The address of a hook is the hook's, also where the library is opened late: a function of CUDA stands before it in the
        // global scope then.
        "-Wl,-Bsymbolic-functions",
        // The allocator keeps a pointer to the tracker for ever, so the library may never go away.
        "-Wl,-z,nodelete",
    ];
    // Only a build of one object can hold the glibc floor (see src/platform/glibc_compat.rs): the profile `preload`, which cargo shows to
    // build scripts as what it inherits from, an optimised build.
    if std::env::var("OPT_LEVEL").is_ok_and(|o| o == "3") {
        println!("cargo:rustc-cfg=strandline_floor");
        // Up to glibc 2.33 threads and dlopen are libraries of their own; later ones keep empty libraries of those names.
        flags.push("-Wl,--push-state,--no-as-needed,-l:libpthread.so.0,-l:libdl.so.2,--pop-state");
    }
    for flag in flags {
        println!("cargo:rustc-cdylib-link-arg={flag}");
    }
}
