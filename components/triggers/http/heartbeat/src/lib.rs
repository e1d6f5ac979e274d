//! The HTTP trigger to `heartbeat`, as a component: `wasi:http/handler` out, the function in. What it does is in the library of triggers.

rollcall_trigger_http::open!(rollcall_trigger_http::Heartbeat);
