//! Where a server listens.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;

use umbrella_block::memory::Memory;
use umbrella_block::serve::nbd::{Address, Export, Exports, Limits, ServeError, Server};
use umbrella_units::ByteSize;

use super::client::Client;

fn start(socket: &Path) -> Result<Server, ServeError> {
    let exports = Exports::new(vec![Export::new("", Arc::new(Memory::new(ByteSize(4096))))])?;
    Server::start(exports, &[Address::Unix(socket.to_owned())], Limits::default())
}

#[test]
fn a_unix_socket_is_for_its_owner_and_gone_after_a_stop() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("nbd");
    let server = start(&socket).expect("it starts");
    assert_eq!(fs::symlink_metadata(&socket).expect("it is there").permissions().mode() & 0o777, 0o600);
    Client::greeted(&socket);
    server.stop().expect("nothing is wrong");
    assert!(!socket.exists());
}

#[test]
fn a_socket_that_somebody_listens_on_is_not_taken() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("nbd");
    let _first = start(&socket).expect("it starts");
    assert!(matches!(start(&socket), Err(ServeError::InUse { .. })));
    Client::greeted(&socket);
}

#[test]
fn a_socket_that_was_left_behind_is_replaced() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("nbd");
    drop(UnixListener::bind(&socket).expect("a socket"));
    let _server = start(&socket).expect("nobody listens there");
    Client::greeted(&socket);
}

#[test]
fn what_is_not_a_socket_is_not_replaced() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("nbd");
    fs::write(&path, "precious").expect("a file");
    assert!(matches!(start(&path), Err(ServeError::NotASocket { .. })));
    std::os::unix::fs::symlink(&path, folder.path().join("link")).expect("a link");
    assert!(matches!(start(&folder.path().join("link")), Err(ServeError::NotASocket { .. })));
    assert_eq!(fs::read_to_string(&path).expect("a file"), "precious");
}

#[test]
fn a_stop_does_not_remove_the_socket_of_another_server() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("nbd");
    let server = start(&socket).expect("it starts");
    fs::remove_file(&socket).expect("it is there");
    let other = UnixListener::bind(&socket).expect("a socket");
    server.stop().expect("nothing is wrong");
    assert!(socket.exists());
    drop(other);
}

#[test]
fn a_folder_that_does_not_exist_and_a_path_that_is_too_long_are_errors() {
    let folder = tempfile::tempdir().expect("a folder");
    for path in [folder.path().join("missing/nbd"), folder.path().join("x".repeat(200))] {
        assert!(matches!(start(&path), Err(ServeError::Listen { .. })));
    }
}

#[test]
fn a_port_in_use_is_an_error_that_names_it() {
    let exports = || Exports::new(vec![Export::new("", Arc::new(Memory::new(ByteSize(4096))))]).expect("one export");
    let any = Address::Tcp("127.0.0.1:0".parse().expect("an address"));
    let server = Server::start(exports(), &[any], Limits::default()).expect("it starts");
    let taken = server.addresses().next().expect("one").clone();
    let error = Server::start(exports(), std::slice::from_ref(&taken), Limits::default()).expect_err("it is taken");
    assert!(error.to_string().contains(&taken.to_string()), "{error}");
}
