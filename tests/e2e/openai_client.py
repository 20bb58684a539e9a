"""OpenAI's own Python client against a running stack: openai_client.py BASE_URL MODEL"""

import sys

import openai

base_url, model = sys.argv[1:]
client = openai.OpenAI(base_url=base_url, api_key="none", max_retries=0, timeout=60)
question = [
    {"role": "system", "content": "Answer briefly."},
    {"role": "user", "content": "Where is it warm?"},
]

answer = client.chat.completions.create(model=model, messages=question, max_tokens=8)
assert answer.choices[0].message.content, answer
assert answer.usage.completion_tokens == 8 or answer.choices[0].finish_reason == "stop", answer
print("chat:", answer.choices[0].message.content)

stream = client.chat.completions.create(
    model=model,
    messages=question,
    max_tokens=8,
    stream=True,
    stream_options={"include_usage": True},
)
text, usage = "", None
for chunk in stream:
    usage = chunk.usage or usage
    for choice in chunk.choices:
        text += choice.delta.content or ""
assert text == answer.choices[0].message.content, (text, answer)
assert usage.prompt_tokens == answer.usage.prompt_tokens, usage
print("stream:", text)

completion = client.completions.create(model=model, prompt="Once upon a time", max_tokens=8)
assert completion.choices[0].text, completion
print("completion:", completion.choices[0].text)

response = client.responses.create(model=model, input="Where is it warm?", max_output_tokens=8)
assert response.output_text and response.usage.output_tokens > 0, response
print("response:", response.output_text)

embeddings = client.embeddings.create(model=model, input=["one", "two"])
assert len(embeddings.data) == 2 and len(embeddings.data[0].embedding) > 0, embeddings
print("embeddings:", len(embeddings.data), "of", len(embeddings.data[0].embedding))

models = [listed.id for listed in client.models.list()]
assert models == [model], models
assert client.models.retrieve(model).id == model
print("models:", models)

for attempt in (
    lambda: client.chat.completions.create(model="no-such-model", messages=question),
    lambda: client.models.retrieve("no-such-model"),
):
    try:
        attempt()
    except openai.NotFoundError as error:
        assert error.code == "model_not_found", error
        print("unknown model:", error.message)
    else:
        raise AssertionError("a model that does not exist was found")
