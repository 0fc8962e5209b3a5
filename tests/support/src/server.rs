//! Real servers with their own files, and one that says exactly what a test wants.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::JoinHandle;

use tempfile::TempDir;

use crate::{Namespace, Running, eventually};

/// Flags of a scan that waits for a server which gets no processor for a while: it is there all the same.
pub const PATIENT: &str = "--read-timeout 9s --total-timeout 30s";

/// OpenSSH's server, which lets a key of its own log in.
#[derive(Debug)]
pub struct Sshd {
    folder: TempDir,
    _process: Running,
}

impl Sshd {
    /// Listens on `port` of every address of `namespace`.
    ///
    /// # Panics
    /// When sshd or ssh-keygen is missing or fails.
    pub fn start(namespace: &Namespace, port: u16) -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        let path = |name: &str| folder.path().join(name).display().to_string();
        for key in ["host", "user"] {
            keygen("ssh-keygen", &["-q", "-t", "ed25519", "-N", "", "-f", &path(key)]);
        }
        fs::copy(path("user.pub"), path("authorized_keys")).expect("the key was made");
        // sshd's unprivileged half lives in this empty folder; a boot script makes it elsewhere.
        fs::create_dir_all("/run/sshd").expect("/run is writable for root");
        let mut command = namespace.command("/usr/sbin/sshd");
        command.args(["-D", "-e", "-f", "/dev/null", "-p", &port.to_string(), "-h", &path("host")]);
        for option in ["PidFile none", "UsePAM no", "StrictModes no", "PermitRootLogin prohibit-password"] {
            command.args(["-o", option]);
        }
        command.args(["-o", &format!("AuthorizedKeysFile {}", path("authorized_keys"))]);
        let process = Running::start(command);
        wait_listening(namespace, port);
        Self { folder, _process: process }
    }

    /// The private key that may log in as root.
    pub fn user_key(&self) -> PathBuf {
        self.folder.path().join("user")
    }
}

/// Dropbear's server; nobody can log in.
#[derive(Debug)]
pub struct Dropbear {
    _folder: TempDir,
    _process: Running,
}

impl Dropbear {
    /// Listens on `port` of every address of `namespace`.
    ///
    /// # Panics
    /// When dropbear or dropbearkey is missing or fails.
    pub fn start(namespace: &Namespace, port: u16) -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        let path = |name: &str| folder.path().join(name).display().to_string();
        keygen("dropbearkey", &["-t", "ed25519", "-f", &path("host")]);
        let mut command = namespace.command("/usr/sbin/dropbear");
        command.args(["-F", "-E", "-r", &path("host"), "-P", &path("pid"), "-p", &port.to_string()]);
        let process = Running::start(command);
        wait_listening(namespace, port);
        Self { _folder: folder, _process: process }
    }
}

fn keygen(program: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
}

/// nginx with one page, `/index.html`, of 11 octets.
#[derive(Debug)]
pub struct Nginx {
    folder: TempDir,
    _process: Running,
}

impl Nginx {
    /// Listens on `port` of every address of `namespace`; `settings` go into its `server` block.
    ///
    /// # Panics
    /// When nginx is missing or fails.
    pub fn start(namespace: &Namespace, port: u16, settings: &str) -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        let path = folder.path().display();
        fs::write(folder.path().join("index.html"), "hello world").expect("the folder is ours");
        let configuration = format!(
            "daemon off; master_process off; pid {path}/pid; error_log stderr;\n\
             events {{}}\n\
             http {{ access_log off; client_body_temp_path {path}/b; proxy_temp_path {path}/p;\n\
             fastcgi_temp_path {path}/f; uwsgi_temp_path {path}/u; scgi_temp_path {path}/s;\n\
             server {{ listen {port}; listen [::]:{port}; root {path}; {settings} }} }}\n"
        );
        let file = folder.path().join("nginx.conf");
        fs::write(&file, configuration).expect("the folder is ours");
        let mut command = namespace.command("/usr/sbin/nginx");
        command.arg("-e").arg("stderr").arg("-p").arg(folder.path()).arg("-c").arg(&file);
        let process = Running::start(command);
        wait_listening(namespace, port);
        Self { folder, _process: process }
    }

    /// The folder of its pages.
    pub fn root(&self) -> &Path {
        self.folder.path()
    }
}

/// Apache with its defaults: a hundred answers a connection.
#[derive(Debug)]
pub struct Apache {
    folder: TempDir,
    _process: Running,
}

impl Apache {
    /// Listens on `port` of every address of `namespace`, without pages.
    ///
    /// # Panics
    /// When apache2 is missing or fails.
    pub fn start(namespace: &Namespace, port: u16) -> Self {
        Self::start_with(namespace, port, "")
    }

    /// As [`Apache::start`], with further lines of configuration.
    ///
    /// # Panics
    /// When apache2 is missing or fails.
    pub fn start_with(namespace: &Namespace, port: u16, settings: &str) -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        let path = folder.path().display();
        let configuration = format!(
            "ServerName test\nListen {port}\nPidFile {path}/.pid\nErrorLog /dev/stderr\n\
             DefaultRuntimeDir {path}\nDocumentRoot {path}\nDirectoryIndex index.html\n\
             LoadModule mpm_event_module /usr/lib/apache2/modules/mod_mpm_event.so\n\
             LoadModule authz_core_module /usr/lib/apache2/modules/mod_authz_core.so\n\
             LoadModule dir_module /usr/lib/apache2/modules/mod_dir.so\n\
             LoadModule mime_module /usr/lib/apache2/modules/mod_mime.so\n\
             TypesConfig /etc/mime.types\n{settings}\n"
        );
        let file = folder.path().join(".apache.conf");
        fs::write(&file, configuration).expect("the folder is ours");
        // Its workers are another user's.
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).expect("the folder is ours");
        let mut command = namespace.command("/usr/sbin/apache2");
        // One process: children would outlive a master that is killed.
        command.arg("-X").arg("-f").arg(&file);
        let process = Running::start(command);
        wait_listening(namespace, port);
        Self { folder, _process: process }
    }

    /// The folder of its pages.
    pub fn root(&self) -> &Path {
        self.folder.path()
    }
}

/// Python's `http.server`: HTTP/1.0, one request a connection.
#[derive(Debug)]
pub struct PythonHttp {
    folder: TempDir,
    _process: Running,
}

impl PythonHttp {
    /// Listens on `port` of every IPv4 address of `namespace`, without pages.
    ///
    /// # Panics
    /// When python3 is missing or fails.
    pub fn start(namespace: &Namespace, port: u16) -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        let mut command = namespace.command("/usr/bin/python3");
        command.args(["-m", "http.server", "--directory"]).arg(folder.path()).arg(port.to_string());
        let process = Running::start(command);
        wait_listening(namespace, port);
        Self { folder, _process: process }
    }

    /// The folder of its pages.
    pub fn root(&self) -> &Path {
        self.folder.path()
    }
}

/// Starts any server, and waits until it listens on `port`.
///
/// # Panics
/// When it cannot be started, or does not listen.
pub fn serve_by(namespace: &Namespace, port: u16, command: Command) -> Running {
    let process = Running::start(command);
    wait_listening(namespace, port);
    process
}

/// Waits until something listens on `port`, without connecting to it.
///
/// # Panics
/// When nothing does.
pub fn wait_listening(namespace: &Namespace, port: u16) {
    eventually(&format!("a server on port {port}"), || {
        let sockets = namespace.run(&format!("ss -Hltn sport = :{port}"));
        (!sockets.is_empty()).then_some(())
    });
}

/// A server of one connection that says what it is told, and tells how the connection ended.
#[derive(Debug)]
pub struct Banner {
    /// Where it listens.
    pub address: SocketAddr,
    thread: JoinHandle<std::io::Result<Vec<u8>>>,
}

impl Banner {
    /// Sends `banner` to the first client, `chunk` octets a segment, then reads till the end.
    ///
    /// # Panics
    /// When the address cannot be had.
    pub fn start(namespace: &Namespace, address: impl Into<SocketAddr>, banner: &[u8], chunk: usize) -> Self {
        let listener = namespace.listen(address);
        let address = listener.local_addr().expect("it is bound");
        let banner = banner.to_vec();
        let thread = std::thread::spawn(move || serve(&listener, &banner, chunk));
        Self { address, thread }
    }

    /// Waits for the connection's end: what the client sent, or the error that ended it.
    ///
    /// # Errors
    /// As reading and writing of the connection, `ConnectionReset` above all.
    ///
    /// # Panics
    /// When the server's thread has panicked.
    pub fn finish(self) -> std::io::Result<Vec<u8>> {
        self.thread.join().expect("serving does not panic")
    }
}

fn serve(listener: &TcpListener, banner: &[u8], chunk: usize) -> std::io::Result<Vec<u8>> {
    let (mut stream, _) = listener.accept()?;
    send_in_chunks(&mut stream, banner, chunk)?;
    let mut received = Vec::new();
    stream.read_to_end(&mut received)?;
    Ok(received)
}

/// Writes `octets`, `chunk` a segment.
///
/// # Errors
/// As writing to the stream.
pub fn send_in_chunks(stream: &mut TcpStream, octets: &[u8], chunk: usize) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    octets.chunks(chunk.max(1)).try_for_each(|part| stream.write_all(part))
}

/// SSH servers on every loopback address, each of which says what `says` makes of its number; their port.
///
/// # Panics
/// When no port is free.
pub fn ssh_servers(says: impl Fn(usize) -> Vec<u8> + Send + 'static) -> u16 {
    let listener = TcpListener::bind("0.0.0.0:0").expect("a free port");
    let port = listener.local_addr().expect("it is bound").port();
    std::thread::spawn(move || {
        for mut connection in listener.incoming().flatten() {
            let Ok(SocketAddr::V4(own)) = connection.local_addr() else { continue };
            let [.., high, low] = own.ip().octets();
            let _ = connection.write_all(&says(usize::from(high) * 256 + usize::from(low)));
        }
    });
    port
}
