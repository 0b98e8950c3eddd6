//! A disk that follows a script: it answers each command with the next reply, and keeps what it was sent.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::sg::{Reply, Transport};

#[derive(Debug, Default)]
struct Scene {
    replies: VecDeque<(Reply, Vec<u8>)>,
    commands: Vec<Vec<u8>>,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Script(Arc<Mutex<Scene>>);

impl Script {
    /// Answers with these replies, and with data that are all zero.
    pub(super) fn new(replies: impl IntoIterator<Item = Reply>) -> Script {
        Script::with_data(replies.into_iter().map(|reply| (reply, Vec::new())))
    }

    /// Answers with these replies and data.
    pub(super) fn with_data(replies: impl IntoIterator<Item = (Reply, Vec<u8>)>) -> Script {
        Script(Arc::new(Mutex::new(Scene { replies: replies.into_iter().collect(), commands: Vec::new() })))
    }

    /// What was sent to it.
    pub(super) fn commands(&self) -> Vec<Vec<u8>> {
        self.0.lock().commands.clone()
    }
}

impl Transport for Script {
    fn send(&self, command: &[u8], data: &mut [u8], _timeout: Duration) -> io::Result<Reply> {
        let mut scene = self.0.lock();
        scene.commands.push(command.to_vec());
        let (reply, said) = scene.replies.pop_front().expect("the script has an answer to every command");
        let length = said.len().min(data.len());
        data[..length].copy_from_slice(&said[..length]);
        Ok(reply)
    }
}

/// Fixed sense data.
pub(super) fn sense(key: u8, code: u8, qualifier: u8) -> Vec<u8> {
    vec![0x70, 0, key, 0, 0, 0, 0, 10, 0, 0, 0, 0, code, qualifier, 0, 0, 0, 0]
}
