//! A proxy in front of Redis that can drop published messages: connections stay open and commands are answered, but messages do
//! not arrive. The same happens when a server drops the output of a slow subscriber, or fails over between publication and
//! delivery.

use std::io::{BufRead, BufReader, Error, ErrorKind, Read, Result, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// How the reply of a published message begins, after its length.
const MESSAGES: [&[u8]; 3] = [b"$7\r\nmessage\r\n", b"$8\r\npmessage\r\n", b"$8\r\nsmessage\r\n"];

/// The proxy. It runs until the process ends.
pub struct LossyProxy {
    port: u16,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    is_dropping: AtomicBool,
    dropped: AtomicUsize,
}

impl LossyProxy {
    /// A proxy to the Redis at this port.
    pub fn to(port: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let proxy = Self { port: listener.local_addr().expect("an address").port(), state: Arc::default() };
        let state = Arc::clone(&proxy.state);
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Ok(server) = TcpStream::connect(("127.0.0.1", port)) else { continue };
                carry(client, server, &state).expect("two sockets");
            }
        });
        proxy
    }

    /// The URL for `--store`.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Drops published messages from now on, or passes them again.
    pub fn set_dropping(&self, is_dropping: bool) {
        self.state.is_dropping.store(is_dropping, Ordering::SeqCst);
    }

    /// How many were dropped.
    pub fn dropped(&self) -> usize {
        self.state.dropped.load(Ordering::SeqCst)
    }
}

/// Copies both directions, one thread each, until either side closes.
fn carry(client: TcpStream, server: TcpStream, state: &Arc<State>) -> Result<()> {
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (mut asking, mut asked) = (client.try_clone()?, server.try_clone()?);
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut asking, &mut asked);
        let _ = asked.shutdown(Shutdown::Both);
    });
    let state = Arc::clone(state);
    std::thread::spawn(move || {
        let mut to = client;
        let _ = pass_on(&mut BufReader::new(server), &mut to, &state);
        let _ = to.shutdown(Shutdown::Both);
    });
    Ok(())
}

fn pass_on(from: &mut BufReader<TcpStream>, to: &mut TcpStream, state: &State) -> Result<()> {
    let mut reply = Vec::new();
    loop {
        reply.clear();
        read(from, &mut reply)?;
        // After `*3\r\n` or `>3\r\n`.
        let kind = reply.get(4..).unwrap_or_default();
        let is_message = MESSAGES.iter().any(|message| kind.starts_with(message));
        if is_message && state.is_dropping.load(Ordering::SeqCst) {
            state.dropped.fetch_add(1, Ordering::SeqCst);
        } else {
            to.write_all(&reply)?;
        }
    }
}

/// Reads one reply, RESP2 or RESP3, byte for byte.
fn read(from: &mut impl BufRead, reply: &mut Vec<u8>) -> Result<()> {
    let start = reply.len();
    if from.read_until(b'\n', reply)? == 0 {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    let line = String::from_utf8_lossy(&reply[start..]).into_owned();
    let (kind, rest) = line.split_at(1);
    let count = || rest.trim_end().parse::<i64>().map_err(|_| Error::new(ErrorKind::InvalidData, line.clone()));
    match kind {
        "$" | "=" | "!" => {
            let length = count()?;
            if length >= 0 {
                from.take(length as u64 + 2).read_to_end(reply)?;
            }
        }
        "*" | "~" | ">" => (0..count()?).try_for_each(|_| read(from, reply))?,
        "%" => (0..2 * count()?).try_for_each(|_| read(from, reply))?,
        _ => {}
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use rollcall_servers::redis::Redis;

    use super::*;
    use crate::resp::{Reply, receive, send};

    #[test]
    fn proxy_drops_published_messages_only() {
        let redis = Redis::start().expect("a Redis");
        let proxy = LossyProxy::to(redis.port());
        let mut line = TcpStream::connect(("127.0.0.1", proxy.port)).expect("a proxy");
        line.set_read_timeout(Some(std::time::Duration::from_secs(10))).expect("a socket");
        let mut answers = BufReader::new(line.try_clone().expect("a socket"));
        let mut answer = |line: &mut TcpStream, words: &[&str]| {
            send(line, words).expect("a connection");
            receive(&mut answers).expect("an answer")
        };
        assert!(matches!(answer(&mut line, &["SUBSCRIBE", "update"]), Reply::List(_)));
        proxy.set_dropping(true);
        assert_eq!(redis.ask(&["PUBLISH", "update", "lost"]).expect("a number"), "1");
        let pong = Reply::List(vec![Reply::Text("pong".to_owned()), Reply::Text(String::new())]);
        assert_eq!(answer(&mut line, &["PING"]), pong);
        assert_eq!(proxy.dropped(), 1);
        proxy.set_dropping(false);
        assert_eq!(redis.ask(&["PUBLISH", "update", "heard"]).expect("a number"), "1");
        let Reply::List(message) = receive(&mut answers).expect("a message") else { panic!("no message") };
        assert_eq!(message.last().and_then(Reply::text), Some("heard"));
    }
}
