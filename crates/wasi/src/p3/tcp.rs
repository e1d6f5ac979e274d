//! TCP byte streams over WASI sockets.

use std::future::poll_fn;
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::task::Poll;

use wasip3::sockets::ip_name_lookup::resolve_addresses;
use wasip3::sockets::types::{
    ErrorCode, IpAddress, IpAddressFamily, IpSocketAddress, Ipv4SocketAddress, Ipv6SocketAddress, TcpSocket,
};
use wasip3::wit_bindgen::{FutureReader, StreamRead, StreamReader, StreamResult, StreamWriter};
use wasip3::wit_stream;

use crate::READ_BYTES;

/// Connects to a host, by its IP address or its name. An error says why that failed.
pub async fn connect(host: &str, port: u16) -> Result<(Incoming, Outgoing), String> {
    let mut why = format!("`{host}` has no address");
    for address in addresses(host).await? {
        match connect_to(address, port).await {
            Ok(socket) => return Ok(open(socket)),
            Err(error) => why = format!("{host}:{port} cannot be reached: {error:?}"),
        }
    }
    Err(why)
}

/// The host's IP addresses: itself if it is one, or what its name resolves to.
async fn addresses(host: &str) -> Result<Vec<IpAddress>, String> {
    match host.parse() {
        Ok(IpAddr::V4(ip)) => Ok(vec![IpAddress::Ipv4(ip.octets().into())]),
        Ok(IpAddr::V6(ip)) => Ok(vec![IpAddress::Ipv6(ip.segments().into())]),
        Err(_) => {
            let found = resolve_addresses(host.to_owned()).await;
            found.map_err(|error| format!("`{host}` cannot be resolved: {error:?}"))
        }
    }
}

async fn connect_to(address: IpAddress, port: u16) -> Result<TcpSocket, ErrorCode> {
    let (family, remote) = match address {
        IpAddress::Ipv4(address) => (IpAddressFamily::Ipv4, IpSocketAddress::Ipv4(Ipv4SocketAddress { port, address })),
        IpAddress::Ipv6(address) => {
            let address = Ipv6SocketAddress { port, flow_info: 0, address, scope_id: 0 };
            (IpAddressFamily::Ipv6, IpSocketAddress::Ipv6(address))
        }
    };
    let socket = TcpSocket::create(family)?;
    socket.connect(remote).await?;
    Ok(socket)
}

fn open(socket: TcpSocket) -> (Incoming, Outgoing) {
    let (bytes, end) = socket.receive();
    let (sink, sent) = wit_stream::new();
    let result = socket.send(sent);
    (Incoming { bytes, kept: Vec::new(), _end: end, _socket: socket }, Outgoing { sink, _result: result })
}

/// Bytes from the server.
pub struct Incoming {
    bytes: StreamReader<u8>,
    /// Bytes that arrived in a cancelled read.
    kept: Vec<u8>,
    _end: FutureReader<Result<(), ErrorCode>>,
    _socket: TcpSocket,
}

impl Incoming {
    /// Waits for some bytes; `None` if the stream ended. Cancel safe.
    pub async fn read(&mut self) -> Option<Vec<u8>> {
        if !self.kept.is_empty() {
            return Some(std::mem::take(&mut self.kept));
        }
        let read = pin!(self.bytes.read(Vec::with_capacity(READ_BYTES)));
        let mut pending = Pending { read: Some(read), kept: &mut self.kept };
        let (result, bytes) = poll_fn(|context| pending.poll(context)).await;
        // The last bytes may come together with the end; then the next read finds the end alone.
        match result {
            StreamResult::Complete(_) | StreamResult::Cancelled => Some(bytes),
            StreamResult::Dropped => Some(bytes).filter(|bytes| !bytes.is_empty()),
        }
    }
}

/// A read that keeps its bytes if it is cancelled.
struct Pending<'a, 'b> {
    /// `None` if it is done.
    read: Option<Pin<&'a mut StreamRead<'b, u8>>>,
    kept: &'a mut Vec<u8>,
}

impl Pending<'_, '_> {
    fn poll(&mut self, context: &mut std::task::Context<'_>) -> Poll<(StreamResult, Vec<u8>)> {
        let Some(read) = &mut self.read else { return Poll::Pending };
        let done = std::task::ready!(read.as_mut().poll(context));
        self.read = None;
        Poll::Ready(done)
    }
}

impl Drop for Pending<'_, '_> {
    fn drop(&mut self) {
        if let Some(read) = self.read.take() {
            let (_, bytes) = read.cancel();
            self.kept.extend(bytes);
        }
    }
}

/// Bytes to the server.
pub struct Outgoing {
    sink: StreamWriter<u8>,
    _result: FutureReader<Result<(), ErrorCode>>,
}

impl Outgoing {
    /// Sends all of these; returns false if the other side closed. If it is cancelled, it is unknown how many bytes were sent.
    pub async fn write(&mut self, bytes: Vec<u8>) -> bool {
        self.sink.write_all(bytes).await.is_empty()
    }
}
