//! Any bytes as a body of the admin interface: no request panics, with the filter's code behind `/api/explain` included.
#![no_main]

use isotherm_ext_proc::fuzzing::read_admin_body;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|body: &[u8]| read_admin_body(body));
