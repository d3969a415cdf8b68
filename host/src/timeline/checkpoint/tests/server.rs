//! A server that speaks S3 and is of somebody else's making, where one is installed: `moto_server` (`pip install
//! 'moto[server]'`). It is started for one test, on a port of its own, and ends with it.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::Full;
use tokio::net::{TcpListener, TcpStream};

use crate::env;
use crate::rig::http::Connection;
use crate::rig::optional;

/// What it is called, unless `MOTO_SERVER` says where it is.
const NAME: &str = "moto_server";
/// How long it may take to begin, with an interpreter that is cold.
const PATIENCE: Duration = Duration::from_secs(60);

pub(super) struct Server {
    process: Child,
    address: SocketAddr,
}

impl Server {
    /// Starts one that has a bucket of this name. `None` where none is installed and the test may be
    /// left out.
    pub(super) async fn start(bucket: &str) -> Option<Self> {
        let Some(program) = installed() else {
            optional::left_out("moto_server is not installed (pip install 'moto[server]'), and MOTO_SERVER names none");
            return None;
        };
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap().local_addr().unwrap();
        let mut command = Command::new(program);
        command.args(["-H", "127.0.0.1", "-p", &free.port().to_string()]).stdout(Stdio::null()).stderr(Stdio::null());
        let mut server = Self { process: command.spawn().unwrap(), address: free };
        server.until_it_listens().await;
        let create = Request::builder().method(Method::PUT).uri(format!("/{bucket}"));
        let create = create.header("host", server.address.to_string()).body(Full::from(Bytes::new())).unwrap();
        let created = Connection::open(server.address).await.unwrap().send(create).await.unwrap();
        assert_eq!(created.status, 200, "{:?}", created.body);
        Some(server)
    }

    pub(super) fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    async fn until_it_listens(&mut self) {
        let is_over = env::deadline(PATIENCE);
        while TcpStream::connect(self.address).await.is_err() {
            assert_eq!(self.process.try_wait().unwrap(), None, "it ended before it listened");
            assert!(!env::has_passed(is_over), "it does not listen");
            env::sleep(Duration::from_millis(20)).await;
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // One that has ended by itself is as good as ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn installed() -> Option<PathBuf> {
    if let Some(program) = std::env::var_os("MOTO_SERVER") {
        return Some(program.into());
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(NAME)).find(|program| program.is_file())
}
