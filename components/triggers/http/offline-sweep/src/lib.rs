//! The HTTP trigger to `offline-sweep`, as a component: `wasi:http/handler` out, the function in. What it does is in the library of triggers.

rollcall_trigger_http::open!(rollcall_trigger_http::OfflineSweep);
