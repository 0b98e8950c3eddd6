//! TLS: public clients encrypt; clients that do not or may not are refused; and a client that stops in the middle
//! delays nobody.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use umbrella_block::file::{FileDevice, OpenOptions};
use umbrella_block::memory::Memory;
use umbrella_block::serve::nbd::{Address, Export, Exports, Limits, Server, Tls, TlsError};
use umbrella_units::ByteSize;

use super::client::{READ, option, request};
use super::support::{noise, run};

/// An authority, and certificates that it has signed for a server and a client, under the names that all programs know.
pub(super) struct Certificates(tempfile::TempDir);

impl Certificates {
    pub(super) fn new() -> Certificates {
        let made = Certificates(tempfile::tempdir().expect("a folder"));
        made.sign("ca", "/CN=authority", &[]);
        let signed = ["-CA", "ca-cert.pem", "-CAkey", "ca-key.pem", "-addext", "basicConstraints=critical,CA:FALSE"];
        let names = ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"];
        made.sign("server", "/CN=localhost", &[&signed[..], &names].concat());
        made.sign("client", "/CN=client", &signed);
        made
    }

    fn sign(&self, name: &str, subject: &str, more: &[&str]) {
        let (key, certificate) = (format!("{name}-key.pem"), format!("{name}-cert.pem"));
        let new = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-noenc", "-days", "30"];
        let made = Command::new("openssl")
            .args(new)
            .args(["-subj", subject, "-keyout", &key, "-out", &certificate])
            .args(more)
            .current_dir(self.folder())
            .output()
            .expect("openssl");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    }

    pub(super) fn folder(&self) -> &Path {
        self.0.path()
    }

    pub(super) fn tls(&self, check_clients: bool) -> Tls {
        Tls::load(self.folder(), check_clients).expect("they can be used")
    }

    /// Only what trusts the server, so that nothing of a client is in it.
    fn of_a_stranger(&self) -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a folder");
        fs::copy(self.folder().join("ca-cert.pem"), folder.path().join("ca-cert.pem")).expect("a copy");
        folder
    }
}

struct Encrypted {
    server: Server,
    address: SocketAddr,
}

impl Encrypted {
    fn new(export: Export, tls: Tls, limits: Limits) -> Encrypted {
        let exports = Exports::new(vec![export]).expect("one export").over(tls);
        let any = Address::Tcp("127.0.0.1:0".parse().expect("an address"));
        let server = Server::start(exports, &[any], limits).expect("it starts");
        let Some(Address::Tcp(address)) = server.addresses().next().cloned() else { panic!("it listens on TCP") };
        Encrypted { server, address }
    }

    fn uri(&self, scheme: &str, certificates: &Path) -> String {
        let port = self.address.port();
        format!("{scheme}://localhost:{port}/?tls-certificates={}", certificates.display())
    }
}

fn memory() -> Export {
    Export::new("", Arc::new(Memory::new(ByteSize(8 << 20))))
}

/// What a client says when it is refused.
fn refused(program: &str, arguments: &[&str]) -> String {
    let done = Command::new("timeout").arg("60").arg(program).args(arguments).output().expect("a client");
    assert!(!done.status.success(), "{program} {arguments:?} was served");
    String::from_utf8_lossy(&done.stderr).into_owned()
}

#[test]
fn what_is_copied_over_tls_is_the_same_on_both_sides() {
    let certificates = Certificates::new();
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_str().expect("UTF-8").to_owned();
    let content = noise(7, 24 << 20);
    fs::write(path("image"), &content).expect("a file");
    let file = FileDevice::open(Path::new(&path("image")), OpenOptions::default()).expect("a device");
    let served = Encrypted::new(Export::of_file("", Arc::new(file)), certificates.tls(true), Limits::default());
    let uri = served.uri("nbds", certificates.folder());
    assert!(run("nbdinfo", &[&uri]).contains("protocol: newstyle-fixed with TLS"));
    for options in [&["--request-size=4096"][..], &["--connections=4", "--request-size=33554432"]] {
        run("nbdcopy", &[options, &[&uri, &path("out")]].concat());
        assert!(fs::read(path("out")).expect("a copy") == content, "{options:?}");
    }
    let other = noise(8, 24 << 20);
    fs::write(path("other"), &other).expect("a file");
    run("nbdcopy", &["--flush", &path("other"), &uri]);
    assert!(fs::read(path("image")).expect("the image") == other);

    let credentials = format!("tls-creds-x509,id=tls,endpoint=client,dir={}", certificates.folder().display());
    let options = format!("driver=nbd,host=localhost,port={},tls-creds=tls", served.address.port());
    run("qemu-img", &["convert", "--object", &credentials, "--image-opts", &options, "-O", "raw", &path("qemu")]);
    assert!(fs::read(path("qemu")).expect("a copy") == other);
    served.server.stop().expect("it stops");
}

#[test]
fn who_does_not_encrypt_or_has_no_certificate_is_refused() {
    let certificates = Certificates::new();
    let served = Encrypted::new(memory(), certificates.tls(true), Limits::default());
    let plain = refused("nbdinfo", &[&served.uri("nbd", certificates.folder())]);
    assert!(plain.contains("server replied with error"), "{plain}");
    assert!(!refused("nbd-client", &["localhost", &served.address.port().to_string(), "/dev/null"]).is_empty());
    let stranger = certificates.of_a_stranger();
    assert!(!refused("nbdinfo", &[&served.uri("nbds", stranger.path())]).is_empty());
    let other = Certificates::new();
    fs::copy(certificates.folder().join("ca-cert.pem"), other.folder().join("ca-cert.pem")).expect("a copy");
    assert!(!refused("nbdinfo", &[&served.uri("nbds", other.folder())]).is_empty(), "signed by somebody else");
    run("nbdinfo", &[&served.uri("nbds", certificates.folder())]);
}

#[test]
fn without_a_check_of_clients_any_may_encrypt_and_where_it_is_optional_nobody_has_to() {
    let certificates = Certificates::new();
    let stranger = certificates.of_a_stranger();
    let served = Encrypted::new(memory(), certificates.tls(false), Limits::default());
    run("nbdinfo", &[&served.uri("nbds", stranger.path())]);
    refused("nbdinfo", &[&served.uri("nbd", stranger.path())]);
    let served = Encrypted::new(memory(), certificates.tls(false).optional(), Limits::default());
    assert!(run("nbdinfo", &[&served.uri("nbds", stranger.path())]).contains("with TLS"));
    assert!(run("nbdinfo", &[&served.uri("nbd", stranger.path())]).contains("without TLS"));
}

/// Connected over TCP, and past the greeting.
fn greeted(address: SocketAddr) -> TcpStream {
    let mut client = TcpStream::connect(address).expect("it listens");
    client.set_read_timeout(Some(Duration::from_secs(60))).expect("a socket");
    client.read_exact(&mut [0; 18]).expect("a greeting");
    client.write_all(&3_u32.to_be_bytes()).expect("it listens");
    client
}

/// The kind of the answer to an option.
fn answered(client: &mut TcpStream) -> u32 {
    let mut front = [0; 20];
    client.read_exact(&mut front).expect("an answer");
    let number = |at: usize| u32::from_be_bytes(front[at..at + 4].try_into().expect("four bytes"));
    client.read_exact(&mut vec![0; number(16) as usize]).expect("its data");
    number(12)
}

/// Waits until the server closes the connection.
fn until_closed(mut client: TcpStream) {
    if let Err(error) = client.read_to_end(&mut Vec::new()) {
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "the server does not close it");
    }
}

/// Longer than a test waits.
const LONG: Duration = Duration::from_secs(600);
const START_TLS: u32 = 5;
const ACK: u32 = 1;
const INVALID: u32 = 0x8000_0003;
const TLS_REQUIRED: u32 = 0x8000_0005;

#[test]
fn nothing_but_tls_and_good_bye_is_answered_without_tls() {
    let certificates = Certificates::new();
    let served = Encrypted::new(memory(), certificates.tls(true), Limits::default());
    let mut client = greeted(served.address);
    for number in [3, 6, 7, 8, 9, 10, 99] {
        client.write_all(&option(number, &[])).expect("it listens");
        assert_eq!(answered(&mut client), TLS_REQUIRED, "option {number}");
    }
    client.write_all(&option(START_TLS, b"data")).expect("it listens");
    assert_eq!(answered(&mut client), INVALID);
    client.write_all(&option(2, &[])).expect("it listens");
    assert_eq!(answered(&mut client), ACK);
    // The old way to begin has no answer for a refusal.
    let mut old = greeted(served.address);
    old.write_all(&[option(1, b""), request(0, READ, 0, 512)].concat()).expect("it listens");
    let mut rest = Vec::new();
    let _ = old.read_to_end(&mut rest);
    assert!(rest.is_empty(), "{} bytes were served", rest.len());
}

#[test]
fn what_was_sent_before_the_encryption_is_not_taken_for_encrypted() {
    let certificates = Certificates::new();
    // No limit closes it before the test gives up.
    let limits = Limits { handshake: LONG, pause: LONG, ..Limits::default() };
    let served = Encrypted::new(memory(), certificates.tls(false), limits);
    let mut client = greeted(served.address);
    // Someone who sits between the two may add to what the client says in the clear.
    client.write_all(&[option(START_TLS, &[]), option(7, &[0; 6])].concat()).expect("it listens");
    assert_eq!(answered(&mut client), ACK);
    until_closed(client);
}

/// Past the greeting, and told to begin with TLS.
fn before_tls(address: SocketAddr) -> std::io::Result<TcpStream> {
    let mut client = TcpStream::connect(address)?;
    client.set_read_timeout(Some(Duration::from_secs(60)))?;
    client.read_exact(&mut [0; 18])?;
    client.write_all(&[&3_u32.to_be_bytes()[..], &option(START_TLS, &[])].concat())?;
    client.read_exact(&mut [0; 20])?;
    Ok(client)
}

#[test]
fn a_client_that_stops_within_tls_is_let_go_and_others_are_served() {
    let certificates = Certificates::new();
    let limits = Limits { handshake: Duration::from_millis(300), pause: LONG, ..Limits::default() };
    let served = Encrypted::new(memory(), certificates.tls(false), limits);
    // A client of ours that stood still for longer than the limit is let go like any other, so that another tries.
    let begin = || (0..100).find_map(|_| before_tls(served.address).ok()).expect("one comes so far");
    // Silent, and in the middle of the first message.
    until_closed(begin());
    let mut half = begin();
    let _ = half.write_all(&[0x16, 3, 1, 1, 0, 1]);
    until_closed(half);
    drop(begin());
    let stranger = certificates.of_a_stranger();
    let uri = served.uri("nbds", stranger.path());
    let is_served = || Command::new("nbdinfo").arg(&uri).output().expect("nbdinfo").status.success();
    assert!((0..100).any(|_| is_served()), "others are served");
    served.server.stop().expect("no connection is left behind");
}

#[test]
fn a_client_that_talks_rubbish_within_tls_is_let_go_and_others_are_served() {
    let certificates = Certificates::new();
    // No limit closes a connection before the test gives up.
    let limits = Limits { handshake: LONG, pause: LONG, ..Limits::default() };
    let served = Encrypted::new(memory(), certificates.tls(false), limits);
    for seed in 0..20 {
        let mut noisy = before_tls(served.address).expect("it listens");
        let _ = noisy.write_all(&noise(seed, 5000));
        until_closed(noisy);
    }
    run("nbdinfo", &[&served.uri("nbds", certificates.of_a_stranger().path())]);
    served.server.stop().expect("no connection is left behind");
}

/// A client of libnbd that connects, does what the script says, and then does nothing any more until it is dropped.
struct Silent(Child);

impl Silent {
    fn after(script: &str, uri: &str) -> Silent {
        let begin = "import sys, nbd\nh = nbd.NBD()\nh.set_uri_allow_local_file(True)\nh.connect_uri(sys.argv[1])";
        let mut client = Command::new("/usr/bin/python3")
            .args(["-c", &format!("{begin}\n{script}\nprint('there', flush=True)\nsys.stdin.read()"), uri])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3");
        client.stdout.as_mut().expect("a pipe").read_exact(&mut [0; 5]).expect("it is there");
        Silent(client)
    }
}

impl Drop for Silent {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_client_that_takes_no_answer_is_let_go() {
    let certificates = Certificates::new();
    let limits = Limits { pause: Duration::from_millis(300), ..Limits::default() };
    let served = Encrypted::new(memory(), certificates.tls(false), limits);
    let uri = served.uri("nbds", certificates.of_a_stranger().path());
    // More than all buffers on the way hold, and good-byes after what only some of them hold. A client that stands
    // still while it asks is let go before it has asked for all.
    let asks = |count: u32, bye: &str| {
        let reads = format!("for at in range({count}): h.aio_pread(nbd.Buffer(1 << 19), at % 8 << 20)");
        format!("try:\n {reads}\n {bye}\nexcept nbd.Error: pass")
    };
    let mut scripts = vec![asks(128, "")];
    scripts.extend([4, 6, 8, 12, 16, 24].map(|count| asks(count, "h.aio_disconnect()")));
    let _clients: Vec<Silent> = scripts.iter().map(|script| Silent::after(script, &uri)).collect();
    let end = Instant::now() + Duration::from_secs(60);
    while served.server.stats().connections > 0 {
        assert!(Instant::now() < end, "{} are still served", served.server.stats().connections);
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_stop_ends_encrypted_connections() {
    let certificates = Certificates::new();
    let limits = Limits { grace: Duration::from_secs(5), ..Limits::default() };
    let served = Encrypted::new(memory(), certificates.tls(false), limits);
    let _client = Silent::after("h.pread(512, 0)", &served.uri("nbds", certificates.of_a_stranger().path()));
    assert_eq!(served.server.stats().connections, 1);
    served.server.stop().expect("it stops");
}

#[test]
fn certificates_that_cannot_be_used_are_reported() {
    let certificates = Certificates::new();
    let reported = |check: bool| Tls::load(certificates.folder(), check).expect_err("they cannot be used").to_string();
    let file = |name: &str| certificates.folder().join(name);
    fs::write(file("ca-cert.pem"), "").expect("a file");
    assert!(reported(true).contains("ca-cert.pem: it holds no certificate"), "{}", reported(true));
    assert!(Tls::load(certificates.folder(), false).is_ok(), "who checks nobody needs no authority");
    fs::copy(file("client-key.pem"), file("server-key.pem")).expect("a copy");
    assert!(matches!(Tls::load(certificates.folder(), false), Err(TlsError::Unusable { .. })), "{}", reported(false));
    fs::write(file("server-key.pem"), "hello").expect("a file");
    assert!(reported(false).contains("server-key.pem: "), "{}", reported(false));
    fs::remove_file(file("server-cert.pem")).expect("it is there");
    assert!(reported(false).contains("server-cert.pem: No such file"), "{}", reported(false));
    assert!(reported(false).contains("TLS needs server-cert.pem and server-key.pem"));
}
