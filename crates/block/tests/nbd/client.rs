//! A client that sends any bytes that the test gives it.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// How long a client waits before the test has failed.
const TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) const READ: u16 = 0;
pub(crate) const WRITE: u16 = 1;
pub(crate) const DISCONNECT: u16 = 2;
pub(crate) const FLUSH: u16 = 3;

pub(crate) struct Client(pub(crate) UnixStream);

impl Client {
    pub(crate) fn connect(socket: &Path) -> Client {
        let stream = UnixStream::connect(socket).expect("somebody listens");
        stream.set_read_timeout(Some(TIMEOUT)).expect("a socket");
        stream.set_write_timeout(Some(TIMEOUT)).expect("a socket");
        Client(stream)
    }

    /// Connected, and past the greeting.
    pub(crate) fn greeted(socket: &Path) -> Client {
        let mut client = Client::connect(socket);
        assert_eq!(client.take(18).expect("a greeting"), b"NBDMAGICIHAVEOPT\x00\x03");
        client.send(&3_u32.to_be_bytes()).expect("it listens");
        client
    }

    /// In the transmission phase of an export, with simple answers.
    pub(crate) fn transmitting(socket: &Path, export: &str) -> Client {
        let mut client = Client::greeted(socket);
        client.option(1, export.as_bytes());
        client.take(10).expect("size and flags");
        client
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes)
    }

    pub(crate) fn take(&mut self, bytes: usize) -> io::Result<Vec<u8>> {
        let mut taken = vec![0; bytes];
        self.0.read_exact(&mut taken)?;
        Ok(taken)
    }

    pub(crate) fn option(&mut self, number: u32, data: &[u8]) {
        self.send(&option(number, data)).expect("it listens");
    }

    pub(crate) fn request(&mut self, command: u16, offset: u64, length: u32) {
        self.send(&request(0, command, offset, length)).expect("it listens");
    }

    /// The error of the next simple answer.
    pub(crate) fn error(&mut self) -> u32 {
        let answer = self.take(16).expect("an answer");
        assert_eq!(answer[..4], [0x67, 0x44, 0x66, 0x98], "a simple answer");
        u32::from_be_bytes(answer[4..8].try_into().expect("four bytes"))
    }

    /// Waits until the server closes the connection; what came before that.
    pub(crate) fn until_closed(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        match self.0.read_to_end(&mut rest) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {}
            read => {
                read.expect("the server closes it before the test gives up");
            }
        }
        rest
    }
}

pub(crate) fn option(number: u32, data: &[u8]) -> Vec<u8> {
    [b"IHAVEOPT", &number.to_be_bytes()[..], &(data.len() as u32).to_be_bytes(), data].concat()
}

pub(crate) fn request(flags: u16, command: u16, offset: u64, length: u32) -> Vec<u8> {
    let magic = 0x2560_9513_u32.to_be_bytes();
    [
        &magic[..],
        &flags.to_be_bytes(),
        &command.to_be_bytes(),
        b"testing!",
        &offset.to_be_bytes(),
        &length.to_be_bytes(),
    ]
    .concat()
}
