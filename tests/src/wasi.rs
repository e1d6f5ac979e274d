//! A plain WASI host: serves the components of `dist/wasi` or `dist/wasi-0.2` on wasmtime's WASI, in this process.
//!
//! Like Spin and `wasmtime serve` it reuses instances of WASI 0.3, each for many requests and several at once. `wasmtime serve` uses the
//! same library, but takes ten minutes to compile.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::time::Sleep;
use wasmtime::component::{Component, GuestTaskId, Linker, ResourceTable};
use wasmtime::{Config, Engine, OptLevel, Store, StoreContextMut};
use wasmtime_wasi::{WasiCtx, WasiCtxView, WasiView};
use wasmtime_wasi_http::handler::{
    HandlerState, Instance, ProxyHandler, ProxyPre, ShouldAccept, WorkerExpiration, WorkerState, WorkerStatus,
};
use wasmtime_wasi_http::{
    Error, RequestOptions, WasiBody, WasiHttpCtx, WasiHttpCtxView, WasiHttpHooks, WasiHttpView, p2, p3,
};

/// How many requests an instance of WASI 0.3 serves in total and at once: the same as in Spin and `wasmtime serve`.
const REQUESTS: (usize, usize) = (128, 16);

/// An instance of WASI 0.2 serves one request, as it does there.
const ONE_REQUEST: (usize, usize) = (1, 1);

/// An instance that is idle this long ends.
const IDLE: Duration = Duration::from_secs(1);

/// A running service. Dropping it stops the service.
pub(crate) struct Wasi {
    address: SocketAddr,
    failures: Arc<Mutex<Vec<String>>>,
    runtime: Option<Runtime>,
}

/// Functions, each with the path prefixes it serves.
pub(crate) type Paths = [(&'static str, &'static [&'static str])];

impl Wasi {
    /// Serves the components of this folder of `dist/` on one port, each with these environment variables.
    pub(crate) fn start(folder: &'static str, paths: &'static Paths, variables: Vec<(String, String)>) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let failures = Arc::<Mutex<Vec<String>>>::default();
        let handlers = components(folder, paths).iter().map(|(name, component)| {
            let (variables, failures) = (variables.clone(), Arc::clone(&failures));
            let engine = component.engine().clone();
            ProxyHandler::new(Function { name, engine, service: linked(component), variables, failures })
        });
        let handlers = paths.iter().map(|(_, paths)| *paths).zip(handlers).collect::<Vec<_>>().into();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("a free port");
        let address = listener.local_addr().expect("an address");
        runtime.spawn(accept(listener, handlers));
        Self { address, failures, runtime: Some(runtime) }
    }

    pub(crate) fn base(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Failures so far, by function: traps, and requests without an answer.
    pub(crate) fn failures(&self) -> Vec<String> {
        self.failures.lock().expect("a lock").clone()
    }
}

impl Drop for Wasi {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

type Handlers = Arc<[(&'static [&'static str], ProxyHandler<Function>)]>;

async fn accept(listener: TcpListener, handlers: Handlers) -> io::Result<()> {
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        tokio::spawn(serve(stream, Arc::clone(&handlers)));
    }
}

/// Serves a connection until the client closes it, which is not an error.
async fn serve(stream: TcpStream, handlers: Handlers) {
    let service = service_fn(|request| answer(request, &handlers));
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

async fn answer(request: Request<Incoming>, handlers: &Handlers) -> Result<Response<WasiBody>, Infallible> {
    let path = request.uri().path();
    let serves = |paths: &[&str]| paths.iter().any(|prefix| path.starts_with(prefix));
    let Some((_, handler)) = handlers.iter().find(|(paths, _)| serves(paths)) else {
        return Ok(plain(404, "no function serves this path"));
    };
    let request = request.map(|body| body.map_err(Error::from).boxed_unsync());
    Ok(handler.handle((), request).await.unwrap_or_else(|error| {
        handler.state().failed(&error);
        plain(500, "the function failed")
    }))
}

fn plain(status: u16, text: &'static str) -> Response<WasiBody> {
    let body = Full::from(text).map_err(|never| match never {}).boxed_unsync();
    Response::builder().status(status).body(body).expect("a response")
}

/// The compiled components. Compiled once: all services of a test use the same.
fn components(folder: &str, paths: &Paths) -> &'static [(&'static str, Component)] {
    static WASI_0_2: OnceLock<Vec<(&str, Component)>> = OnceLock::new();
    static WASI_0_3: OnceLock<Vec<(&str, Component)>> = OnceLock::new();
    let compiled = if folder == "wasi" { &WASI_0_3 } else { &WASI_0_2 };
    compiled.get_or_init(|| {
        let mut config = Config::new();
        config.wasm_component_model_async(true);
        // Each has two megabytes, most of which never runs: compile fast.
        config.cranelift_opt_level(OptLevel::None);
        let engine = Engine::new(&config).expect("an engine");
        let compiled = paths.iter().map(|(name, _)| {
            let file = crate::root().join("dist").join(folder).join(name).with_extension("wasm");
            (*name, Component::from_file(&engine, file).expect("a component"))
        });
        compiled.collect()
    })
}

/// Links a component with all of WASI and nothing else.
fn linked(component: &Component) -> ProxyPre<Guest> {
    let mut linker = Linker::new(component.engine());
    wasmtime_wasi::p2::add_to_linker_async(&mut linker).expect("WASI 0.2, which Rust's standard library uses");
    wasmtime_wasi::p3::add_to_linker(&mut linker).expect("WASI 0.3");
    p3::add_to_linker(&mut linker).expect("HTTP");
    p2::add_only_http_to_linker_async(&mut linker).expect("HTTP of WASI 0.2");
    let component = linker.instantiate_pre(component).expect("a component that links");
    let service = p3::bindings::ServicePre::new(component.clone()).map(ProxyPre::P3);
    service.or_else(|_| p2::bindings::ProxyPre::new(component).map(ProxyPre::P2)).expect("a component that serves HTTP")
}

/// A deployed function.
struct Function {
    name: &'static str,
    engine: Engine,
    service: ProxyPre<Guest>,
    variables: Vec<(String, String)>,
    failures: Arc<Mutex<Vec<String>>>,
}

impl Function {
    fn failed(&self, error: &wasmtime::Error) {
        record(&self.failures, self.name, error);
    }
}

fn record(failures: &Mutex<Vec<String>>, name: &str, error: &wasmtime::Error) {
    failures.lock().expect("a lock").push(format!("{name}: {error:?}"));
}

impl HandlerState for Function {
    type StoreData = Guest;
    type WorkerExpiration = Idle;
    type WorkerState = Recorder;

    async fn instantiate(&self) -> wasmtime::Result<Instance<Guest, Idle, Recorder>> {
        let mut wasi = WasiCtx::builder();
        wasi.envs(&self.variables).inherit_network().allow_tcp(true).allow_ip_name_lookup(true).inherit_stderr();
        let guest =
            Guest { wasi: wasi.build(), http: WasiHttpCtx::new(), table: ResourceTable::new(), hooks: DenyOutgoing };
        let mut store = Store::new(&self.engine, guest);
        let proxy = self.service.instantiate_async(&mut store).await?;
        let expiration = Idle(Box::pin(tokio::time::sleep(IDLE)));
        let requests = if matches!(self.service, ProxyPre::P2(_)) { ONE_REQUEST } else { REQUESTS };
        let state = Recorder { name: self.name, requests, failures: Arc::clone(&self.failures) };
        Ok(Instance { store, proxy, view: WasiHttpView::http, expiration, state })
    }
}

/// Ends an idle instance.
struct Idle(Pin<Box<Sleep>>);

impl WorkerExpiration for Idle {
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>, status: WorkerStatus, start: Instant) -> Poll<()> {
        if status != WorkerStatus::Idle {
            return Poll::Pending;
        }
        let deadline = (start + IDLE).into();
        if self.0.deadline() != deadline {
            self.0.as_mut().reset(deadline);
        }
        self.0.as_mut().poll(context)
    }
}

/// Records the failures of an instance.
struct Recorder {
    name: &'static str,
    requests: (usize, usize),
    failures: Arc<Mutex<Vec<String>>>,
}

impl WorkerState for Recorder {
    type StoreData = Guest;
    type RequestData = ();

    fn should_accept_request(&self, concurrent: usize, total: usize) -> ShouldAccept {
        match (total >= self.requests.0, concurrent >= self.requests.1) {
            (true, _) => ShouldAccept::Never,
            (_, true) => ShouldAccept::No,
            _ => ShouldAccept::Yes,
        }
    }

    fn on_request_start(
        &self,
        _: StoreContextMut<'_, Guest>,
        (): (),
        _: GuestTaskId,
    ) -> Pin<Box<dyn Future<Output = ()> + Send + Sync>> {
        Box::pin(std::future::pending())
    }

    fn drop(&self, _: Store<Guest>, result: wasmtime::Result<()>) {
        if let Err(error) = result {
            record(&self.failures, self.name, &error);
        }
    }
}

/// The WASI state of one instance.
struct Guest {
    wasi: WasiCtx,
    http: WasiHttpCtx,
    table: ResourceTable,
    hooks: DenyOutgoing,
}

impl WasiView for Guest {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView { ctx: &mut self.wasi, table: &mut self.table }
    }
}

impl WasiHttpView for Guest {
    fn http(&mut self) -> WasiHttpCtxView<'_> {
        WasiHttpCtxView { hooks: &mut self.hooks, table: &mut self.table, ctx: &mut self.http }
    }
}

/// Denies outgoing HTTP requests: no function makes any.
struct DenyOutgoing;

/// The I/O of a request in progress.
type Exchange = Box<dyn Future<Output = Result<(), Error>> + Send>;

impl WasiHttpHooks for DenyOutgoing {
    fn send_request(
        &mut self,
        _: Request<WasiBody>,
        _: Option<RequestOptions>,
        _: Exchange,
    ) -> Box<dyn Future<Output = Result<(Response<WasiBody>, Exchange), Error>> + Send> {
        Box::new(std::future::ready(Err(Error::HttpRequestDenied)))
    }
}
