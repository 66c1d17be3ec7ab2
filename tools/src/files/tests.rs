use super::*;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

/// A new folder below the temporary one.
fn place(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("strandline-files-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&path);
    fs::create_dir_all(&path).unwrap();
    path
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

#[test]
fn a_link_in_the_place_of_a_file_is_replaced_and_what_it_names_stays() {
    let home = place("link");
    let (victim, asked) = (home.join("victim"), home.join("report.html"));
    fs::write(&victim, "precious").unwrap();
    symlink(&victim, &asked).unwrap();
    write(&asked, b"page").unwrap();
    assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
    assert_eq!(fs::read_to_string(&asked).unwrap(), "page");
    assert!(!fs::symlink_metadata(&asked).unwrap().is_symlink());
    assert_eq!(mode(&asked), 0o600);
    // A hard link is a second name of the same file: it is not written through either.
    let second = home.join("second");
    fs::hard_link(&victim, &second).unwrap();
    write(&second, b"page").unwrap();
    assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
    fs::remove_dir_all(&home).unwrap();
}

#[test]
fn a_file_is_there_whole_or_as_it_was() {
    let home = place("whole");
    let path = home.join("a");
    write(&path, b"old").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    let mut new = create(&path).unwrap();
    new.write_all(b"half").unwrap();
    drop(new);
    assert_eq!(fs::read_to_string(&path).unwrap(), "old");
    assert_eq!(fs::read_dir(&home).unwrap().count(), 1, "no part is left behind");
    write(&path, b"new").unwrap();
    assert_eq!(
        (fs::read_to_string(&path).unwrap().as_str(), mode(&path)),
        ("new", 0o644),
        "as open as it was"
    );
    fs::remove_dir_all(&home).unwrap();
}

#[test]
fn what_is_no_file_is_written_and_never_replaced() {
    write(Path::new("/dev/null"), b"nothing").unwrap();
    assert!(!fs::metadata("/dev/null").unwrap().is_file());
    assert!(create(Path::new("/")).is_err() && create(Path::new("..")).is_err());
}

#[test]
fn an_account_is_kept_in_a_file_of_ours_alone() {
    let home = place("append");
    let folder = Folder::ours(&home).unwrap();
    let name = OsStr::new("alerts.jsonl");
    folder.append(name).unwrap().write_all(b"1\n").unwrap();
    folder.append(name).unwrap().write_all(b"2\n").unwrap();
    assert_eq!(fs::read_to_string(home.join(name)).unwrap(), "1\n2\n");
    assert_eq!(mode(&home.join(name)), 0o600);
    let victim = home.join("victim");
    fs::write(&victim, "precious\n").unwrap();
    symlink(&victim, home.join("link")).unwrap();
    fs::hard_link(&victim, home.join("second")).unwrap();
    for planted in ["link", "second"] {
        assert!(folder.append(OsStr::new(planted)).is_err(), "{planted}");
    }
    assert_eq!(fs::read_to_string(&victim).unwrap(), "precious\n");
    fs::remove_dir_all(&home).unwrap();
}

#[test]
fn a_path_below_a_folder_leads_out_of_it_in_no_way() {
    let home = place("below");
    fs::create_dir(home.join("sub")).unwrap();
    symlink("/tmp", home.join("out")).unwrap();
    let below =
        |path: &str| Folder::open(&home).unwrap().below(Path::new(path)).map(|(_, name)| name.to_owned());
    assert_eq!(below("a.pickle").unwrap(), "a.pickle");
    assert_eq!(below("./sub/a.pickle").unwrap(), "a.pickle");
    for bad in ["../a", "sub/../../a", "/tmp/a", "out/a", "", ".", "nowhere/a"] {
        assert!(below(bad).is_err(), "{bad}");
    }
    fs::remove_dir_all(&home).unwrap();
}

#[test]
fn a_private_folder_is_a_real_one_of_ours_that_nobody_else_looks_into() {
    let home = place("private");
    let path = home.join("cache");
    Folder::private(&path).unwrap();
    assert_eq!(mode(&path), 0o700);
    Folder::private(&path).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    assert!(Folder::private(&path).is_err(), "others may look into it");
    let link = home.join("link");
    symlink(&path, &link).unwrap();
    assert!(Folder::private(&link).is_err(), "a link");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
    fs::set_permissions(&home, fs::Permissions::from_mode(0o777)).unwrap();
    assert!(Folder::private(&path).is_err(), "others may rename it");
    // Another user's, where we may be one.
    if user() == 0 {
        fs::set_permissions(&home, fs::Permissions::from_mode(0o1777)).unwrap();
        std::os::unix::fs::chown(&path, Some(12345), None).unwrap();
        assert!(Folder::private(&path).is_err(), "another user's");
        assert!(Folder::ours(&path).is_err(), "root writes nothing unasked into a user's folder");
    }
    fs::remove_dir_all(&home).unwrap();
}

#[test]
fn folders_are_ours_alone_whatever_the_umask() {
    let home = place("umask");
    // SAFETY: umask touches no memory and cannot fail.
    let before = unsafe { libc::umask(0) };
    make_folder(&home.join("a/b")).unwrap();
    new_folder(&home.join("c")).unwrap();
    write(&home.join("f"), b"").unwrap();
    // SAFETY: as above.
    unsafe { libc::umask(before) };
    assert_eq!(["a", "a/b", "c", "f"].map(|p| mode(&home.join(p))), [0o700, 0o700, 0o700, 0o600]);
    assert_eq!(new_folder(&home.join("c")).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    fs::remove_dir_all(&home).unwrap();
}
