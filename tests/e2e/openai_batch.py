"""OpenAI's own Python client against the batch API: openai_batch.py BASE_URL KEY MODEL LINES"""

import io
import json
import sys
import time

import openai

base_url, key, model, lines = sys.argv[1:]
lines = int(lines)
client = openai.OpenAI(base_url=base_url, api_key=key, max_retries=0, timeout=60)


def request(number, **changes):
    body = {"model": model, "messages": [{"role": "user", "content": f"number {number}"}], "max_tokens": 4}
    line = {"custom_id": f"c{number}", "method": "POST", "url": "/v1/chat/completions", "body": body}
    return json.dumps(line | changes)


def upload(requests):
    content = "\n".join(requests).encode()
    return client.files.create(file=("requests.jsonl", io.BytesIO(content)), purpose="batch"), content


def wait(batch, *statuses):
    deadline = time.monotonic() + 180
    seen = [batch.status]
    while batch.status not in statuses:
        assert time.monotonic() < deadline, batch
        time.sleep(0.1)
        batch = client.batches.retrieve(batch.id)
        if batch.status != seen[-1]:
            seen.append(batch.status)
    return batch, seen


# Upload, create, poll, download.
file, content = upload(request(number) for number in range(lines))
assert file.bytes == len(content) and file.purpose == "batch" and file.filename == "requests.jsonl", file
assert client.files.content(file.id).read() == content
batch = client.batches.create(
    input_file_id=file.id,
    endpoint="/v1/chat/completions",
    completion_window="24h",
    metadata={"project": "a"},
)
assert batch.object == "batch" and batch.expires_at - batch.created_at == 86400, batch
batch, seen = wait(batch, "completed", "failed", "expired", "cancelled")
assert batch.status == "completed", batch
assert (batch.request_counts.total, batch.request_counts.completed) == (lines, lines), batch
assert batch.error_file_id is None and batch.metadata == {"project": "a"} and batch.model == model, batch
output = [json.loads(line) for line in client.files.content(batch.output_file_id).text.splitlines()]
assert [line["custom_id"] for line in output] == [f"c{number}" for number in range(lines)]
for line in output:
    assert line["response"]["status_code"] == 200 and line["error"] is None, line
    assert line["response"]["body"]["choices"][0]["message"]["content"], line
assert client.files.retrieve(batch.output_file_id).purpose == "batch_output"
print("completed by", " -> ".join(seen), "with", len(output), "lines")

# One request fails, the others succeed.
unknown = json.loads(request(1))["body"] | {"model": model, "messages": []}
file2, _ = upload([request(0), request(1, body=unknown | {"max_tokens": -5})])
batch2 = client.batches.create(input_file_id=file2.id, endpoint="/v1/chat/completions", completion_window="1h")
batch2, _ = wait(batch2, "completed", "failed")
assert batch2.status == "completed" and batch2.request_counts.failed == 1, batch2
errors = [json.loads(line) for line in client.files.content(batch2.error_file_id).text.splitlines()]
assert [line["custom_id"] for line in errors] == ["c1"] and errors[0]["response"]["status_code"] == 400, errors
print("one error:", errors[0]["response"]["body"]["error"]["message"])

# Mistakes in the file fail the batch.
file3, _ = upload([request(0), request(0), "{"])
batch3 = client.batches.create(input_file_id=file3.id, endpoint="/v1/chat/completions", completion_window="24h")
batch3, _ = wait(batch3, "failed", "completed")
assert batch3.status == "failed", batch3
assert [(error.line, error.code) for error in batch3.errors.data] == [
    (2, "duplicate_custom_id"),
    (3, "invalid_json_line"),
], batch3.errors
print("failed:", batch3.errors.data[0].message)

# Cancel.
file4, _ = upload(request(number) for number in range(lines * 10))
batch4 = client.batches.create(input_file_id=file4.id, endpoint="/v1/chat/completions", completion_window="24h")
batch4, _ = wait(batch4, "in_progress", "completed")
while not batch4.request_counts.completed:
    batch4 = client.batches.retrieve(batch4.id)
cancelled = client.batches.cancel(batch4.id)
assert cancelled.status in ("cancelling", "cancelled"), cancelled
batch4, seen = wait(cancelled, "cancelled", "completed")
assert batch4.status == "cancelled", batch4
counts = batch4.request_counts
assert counts.completed + counts.failed == counts.total == lines * 10, counts
kept = [json.loads(line) for line in client.files.content(batch4.output_file_id).text.splitlines()]
assert len(kept) == counts.completed > 0, counts
print("cancelled by", " -> ".join(seen), "after", counts.completed, "of", counts.total, "lines")

# Lists, newest first, in pages.
ids = [listed.id for listed in client.batches.list(limit=2)]
assert ids == [batch4.id, batch3.id, batch2.id, batch.id], ids
files = [listed.id for listed in client.files.list(purpose="batch")]
assert files == [file4.id, file3.id, file2.id, file.id], files

# Files go.
assert client.files.delete(file.id).deleted
assert client.files.delete(batch.output_file_id).deleted

# Errors.
for kind, attempt in (
    (openai.NotFoundError, lambda: client.files.retrieve(file.id)),
    (openai.NotFoundError, lambda: client.files.content(batch.output_file_id)),
    (openai.NotFoundError, lambda: client.batches.retrieve("batch_none")),
    (openai.ConflictError, lambda: client.batches.cancel(batch.id)),
    (openai.BadRequestError, lambda: client.files.create(file=b"{}", purpose="fine-tune")),
    (openai.BadRequestError, lambda: client.batches.create(
        input_file_id=file2.id, endpoint="/api/replicas", completion_window="24h")),
    (openai.BadRequestError, lambda: client.batches.create(
        input_file_id=file2.id, endpoint="/v1/completions", completion_window="25h")),
    (openai.AuthenticationError, lambda: client.with_options(api_key="wrong").batches.list()),
):
    try:
        attempt()
    except kind as error:
        print(kind.__name__, error.status_code, error.body["message"])
    else:
        raise AssertionError(kind)

# Another owner sees nothing of this.
other = client.with_options(api_key=key + "-other")
assert not list(other.batches.list()) and not list(other.files.list())
