//! TCP byte streams.

use std::net::IpAddr;
use std::rc::Rc;

use wasip2::io::poll::Pollable;
use wasip2::io::streams::{InputStream, OutputStream};
use wasip2::sockets::instance_network::instance_network;
use wasip2::sockets::ip_name_lookup::resolve_addresses;
use wasip2::sockets::network::{
    ErrorCode, IpAddress, IpAddressFamily, IpSocketAddress, Ipv4SocketAddress, Ipv6SocketAddress, Network,
};
use wasip2::sockets::tcp::TcpSocket;
use wasip2::sockets::tcp_create_socket::create_tcp_socket;

use super::reactor::ready;
use crate::READ_BYTES;

/// Connects to a host, by its IP address or its name. An error says why that failed.
pub async fn connect(host: &str, port: u16) -> Result<(Incoming, Outgoing), String> {
    let network = instance_network();
    let mut why = format!("`{host}` has no address");
    for address in addresses(&network, host).await? {
        match connect_to(&network, address, port).await {
            Ok(streams) => return Ok(streams),
            Err(error) => why = format!("{host}:{port} cannot be reached: {error:?}"),
        }
    }
    Err(why)
}

/// The host's IP addresses: itself if it is one, or what its name resolves to.
async fn addresses(network: &Network, host: &str) -> Result<Vec<IpAddress>, String> {
    match host.parse() {
        Ok(IpAddr::V4(ip)) => Ok(vec![IpAddress::Ipv4(ip.octets().into())]),
        Ok(IpAddr::V6(ip)) => Ok(vec![IpAddress::Ipv6(ip.segments().into())]),
        Err(_) => resolve(network, host).await.map_err(|error| format!("`{host}` cannot be resolved: {error:?}")),
    }
}

async fn resolve(network: &Network, host: &str) -> Result<Vec<IpAddress>, ErrorCode> {
    let found = resolve_addresses(network, host)?;
    let mut addresses = Vec::new();
    loop {
        match found.resolve_next_address() {
            Ok(Some(address)) => addresses.push(address),
            Ok(None) => return Ok(addresses),
            Err(ErrorCode::WouldBlock) => ready(&Rc::new(found.subscribe())).await,
            Err(error) => return Err(error),
        }
    }
}

async fn connect_to(network: &Network, address: IpAddress, port: u16) -> Result<(Incoming, Outgoing), ErrorCode> {
    let (family, remote) = match address {
        IpAddress::Ipv4(address) => (IpAddressFamily::Ipv4, IpSocketAddress::Ipv4(Ipv4SocketAddress { port, address })),
        IpAddress::Ipv6(address) => {
            let address = Ipv6SocketAddress { port, flow_info: 0, address, scope_id: 0 };
            (IpAddressFamily::Ipv6, IpSocketAddress::Ipv6(address))
        }
    };
    let socket = create_tcp_socket(family)?;
    socket.start_connect(network, remote)?;
    let pollable = Rc::new(socket.subscribe());
    let (input, output) = loop {
        match socket.finish_connect() {
            Err(ErrorCode::WouldBlock) => ready(&pollable).await,
            finished => break finished?,
        }
    };
    drop(pollable);
    let socket = Rc::new(socket);
    let incoming = Incoming { readable: Rc::new(input.subscribe()), stream: input, _socket: Rc::clone(&socket) };
    let outgoing = Outgoing { writable: Rc::new(output.subscribe()), stream: output, _socket: socket };
    Ok((incoming, outgoing))
}

/// Bytes from the server. The fields are dropped in this order: a host refuses to drop a stream before its pollable, and a socket
/// before its streams.
pub struct Incoming {
    readable: Rc<Pollable>,
    stream: InputStream,
    _socket: Rc<TcpSocket>,
}

impl Incoming {
    /// Waits for some bytes; `None` if the stream ended. Cancel safe.
    pub async fn read(&mut self) -> Option<Vec<u8>> {
        loop {
            let bytes = self.stream.read(READ_BYTES as u64).ok()?;
            if !bytes.is_empty() {
                return Some(bytes);
            }
            ready(&self.readable).await;
        }
    }
}

/// Bytes to the server; the order of its fields as in [`Incoming`].
pub struct Outgoing {
    writable: Rc<Pollable>,
    stream: OutputStream,
    _socket: Rc<TcpSocket>,
}

impl Outgoing {
    /// Sends all of these; returns false if the other side closed. If it is cancelled, it is unknown how many bytes were sent.
    pub async fn write(&mut self, bytes: Vec<u8>) -> bool {
        write_all(&self.stream, &self.writable, &bytes).await
    }
}

/// Writes and sends all of these; returns false if the other side closed.
pub async fn write_all(stream: &OutputStream, writable: &Rc<Pollable>, mut bytes: &[u8]) -> bool {
    while !bytes.is_empty() {
        let Ok(permitted) = stream.check_write() else { return false };
        let permitted = usize::try_from(permitted).unwrap_or(usize::MAX).min(bytes.len());
        if permitted == 0 {
            ready(writable).await;
            continue;
        }
        let (now, later) = bytes.split_at(permitted);
        if stream.write(now).is_err() {
            return false;
        }
        bytes = later;
    }
    stream.flush().is_ok()
}
