//! The HTTP door to `restriction-check`, as a component: `wasi:http/handler` out, the function in. What it does is in the library of doors.

rollcall_door_http::open!(rollcall_door_http::Restrictions);
