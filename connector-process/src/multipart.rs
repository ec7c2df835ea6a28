//! Bodies of requests that upload a file, as `multipart/form-data`. Pure.

use uuid::Uuid;

/// A file to upload.
#[derive(Debug, Clone, Copy)]
pub(crate) struct UploadedFile<'a> {
    pub(crate) name: &'a str,
    pub(crate) content: &'a [u8],
}

/// A form being written.
#[derive(Debug)]
pub(crate) struct Multipart {
    boundary: String,
    body: Vec<u8>,
}

impl Multipart {
    pub(crate) fn new() -> Self {
        Self {
            boundary: format!("goondan-{}", Uuid::now_v7().simple()),
            body: Vec::new(),
        }
    }

    pub(crate) fn text(&mut self, name: &str, value: &str) {
        let head = format!("name=\"{}\"", quoted(name));
        self.part(&head, value.as_bytes());
    }

    pub(crate) fn file(&mut self, name: &str, file: &UploadedFile<'_>) {
        let (name, file_name) = (quoted(name), quoted(file.name));
        let head = format!(
            "name=\"{name}\"; filename=\"{file_name}\"\r\nContent-Type: application/octet-stream"
        );
        self.part(&head, file.content);
    }

    fn part(&mut self, head: &str, content: &[u8]) {
        let head = format!(
            "--{}\r\nContent-Disposition: form-data; {head}\r\n\r\n",
            self.boundary
        );
        self.body.extend_from_slice(head.as_bytes());
        self.body.extend_from_slice(content);
        self.body.extend_from_slice(b"\r\n");
    }

    /// Adds the form to a request.
    pub(crate) fn into_request(
        mut self,
        request: reqwest::RequestBuilder,
    ) -> reqwest::RequestBuilder {
        let end = format!("--{}--\r\n", self.boundary);
        self.body.extend_from_slice(end.as_bytes());
        let kind = format!("multipart/form-data; boundary={}", self.boundary);
        request.header("content-type", kind).body(self.body)
    }
}

/// A name as the HTML standard writes it in a form.
fn quoted(name: &str) -> String {
    name.replace('"', "%22")
        .replace('\r', "%0D")
        .replace('\n', "%0A")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conn_2_file_name_cannot_leave_its_header() {
        let mut form = Multipart::new();
        form.text("chat_id", "-5");
        let file = UploadedFile {
            name: "a\"\r\nX: y.txt",
            content: b"hi",
        };
        form.file("document", &file);
        let body = String::from_utf8(form.body.clone()).unwrap();
        let boundary = &form.boundary;
        let expected = format!(
            "--{boundary}\r\nContent-Disposition: form-data; name=\"chat_id\"\r\n\r\n-5\r\n\
             --{boundary}\r\nContent-Disposition: form-data; name=\"document\"; \
             filename=\"a%22%0D%0AX: y.txt\"\r\nContent-Type: application/octet-stream\r\n\r\nhi\r\n"
        );
        assert_eq!(body, expected);
    }
}
