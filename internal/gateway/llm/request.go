package llm

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/pricing"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// endpoint is an upstream path that calls may use.
type endpoint struct {
	path    string
	dialect dialect
}

func endpoints(api sandbox.LLMAPI) []endpoint {
	switch api {
	case sandbox.LLMAnthropic:
		return []endpoint{{"/v1/messages", messages}, {"/v1/messages/count_tokens", counting}}
	case sandbox.LLMOpenAI:
		return []endpoint{{"/v1/chat/completions", chat}, {"/v1/responses", responses}, {"/v1/embeddings", embeddings}}
	default:
		return []endpoint{{"/v1/chat/completions", chat}, {"/v1/embeddings", embeddings}}
	}
}

// request is a checked request, as the upstream gets it.
type request struct {
	model string
	body  []byte
	// most are the most tokens that the call can use, in the most expensive price classes.
	most sandbox.LLMTokens
	cost sandbox.NanoUSD // of most
	// stream means that the client wants a stream; hide, that it did not ask for the chunk with the usage.
	stream, hide bool
}

// object is a JSON object. Its values are parts of the text that it was parsed from. Encoding it again removes
// duplicate keys, so that the upstream sees what was checked.
type object map[string]json.RawMessage

// parameterName matches all parameters. Some upstreams ignore the case of names. With another spelling, they could see
// an unchecked parameter. It takes a millisecond to compile, which each start of the provider would pay.
var parameterName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z0-9_.:-]{1,128}$`) })

// maxParts limits the members of an object and the items of a list that are checked one by one, because each takes more
// memory than its text. OpenAI allows 128 tools (read 2026-11).
const maxParts = 512

func parseObject(b []byte) (object, error) {
	var nothing struct{} // so that the check of the syntax keeps no values
	if err := json.Unmarshal(b, &nothing); err != nil {
		var syntax *json.SyntaxError
		if errors.As(err, &syntax) {
			return nil, fmt.Errorf("it is not valid JSON: %w", syntax)
		}
		return nil, errors.New("it is not a JSON object")
	}
	if string(bytes.TrimSpace(b)) == "null" {
		return nil, errors.New("it is null")
	}
	o, n := object{}, 0
	for part := range parts(b) {
		if n++; n > maxParts {
			return nil, fmt.Errorf("it has more than %d members", maxParts)
		}
		end := endOfString(part, 0) + 1
		key := unescape(part[1 : end-1])
		if !parameterName().MatchString(key) {
			return nil, fmt.Errorf("%.128q is not the name of a parameter: names are lower-case letters, digits and '_'", key)
		}
		_, value, _ := bytes.Cut(part[end:], []byte{':'})
		o[key] = bytes.TrimSpace(value)
	}
	return o, nil
}

// parts yields the parts of a valid object or list between its commas.
func parts(b []byte) func(yield func(json.RawMessage) bool) {
	return func(yield func(json.RawMessage) bool) {
		depth, begin := 0, 0
		for i := 0; i < len(b); i++ {
			end := false
			switch b[i] {
			case '"':
				i = endOfString(b, i)
			case '{', '[':
				if depth++; depth == 1 {
					begin = i + 1
				}
			case '}', ']':
				depth--
				end = depth == 0
			case ',':
				end = depth == 1
			}
			if !end {
				continue
			}
			if part := bytes.TrimSpace(b[begin:i]); len(part) > 0 && !yield(part) {
				return
			}
			begin = i + 1
		}
	}
}

// endOfString returns the index of the closing quote of the string that begins at i.
func endOfString(b []byte, i int) int {
	for i++; i < len(b) && b[i] != '"'; i++ {
		if b[i] == '\\' {
			i++
		}
	}
	return min(i, len(b))
}

// has reports whether a member is present and not null.
func (o object) has(key string) bool { return len(o[key]) > 0 && string(o[key]) != "null" }

// read decodes a member; v stays as it is if the member is absent or null.
func (o object) read(key string, v any) *refusal {
	if !o.has(key) {
		return nil
	}
	if err := json.Unmarshal(o[key], v); err != nil {
		return wrongType(key, typeOf(v))
	}
	return nil
}

func wrongType(key, want string) *refusal {
	return refuse(http.StatusBadRequest, codeInvalid, "%s has a value of a wrong type: use %s", key, want)
}

// items returns the items of a list; none if it is absent or null.
func (o object) items(key string) ([]json.RawMessage, *refusal) {
	if !o.has(key) {
		return nil, nil
	}
	if o[key][0] != '[' {
		return nil, wrongType(key, "a list")
	}
	var items []json.RawMessage
	for item := range parts(o[key]) {
		if len(items) == maxParts {
			return nil, refuse(http.StatusBadRequest, codeInvalid, "%s has more than %d items: use fewer", key, maxParts)
		}
		items = append(items, item)
	}
	return items, nil
}

func typeOf(v any) string {
	switch v.(type) {
	case *string:
		return "a string"
	case *bool:
		return "true or false"
	case *int64:
		return "a whole number"
	default:
		return "a list of strings"
	}
}

// encode returns the object as JSON.
func (o object) encode() []byte {
	size := 2
	for key, value := range o {
		size += len(key) + len(value) + 4
	}
	return o.appendTo(make([]byte, 0, size))
}

// appendTo appends the object as JSON, which is not longer than the text that it was parsed from.
func (o object) appendTo(b []byte) []byte {
	b = append(b, '{')
	for i, key := range slices.Sorted(maps.Keys(o)) {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, '"')
		b = append(b, key...)
		b = append(b, '"', ':')
		b = append(b, o[key]...)
	}
	return append(b, '}')
}

// parse checks a body. It refuses calls whose price does not depend on their tokens alone.
func parse(body []byte, r Route, name string, e endpoint) (*request, *refusal) {
	o, err := parseObject(body)
	if err != nil {
		return nil, refuse(http.StatusBadRequest, codeInvalid, "the body cannot be read: %s", err)
	}
	q := &request{}
	if bad := o.read("model", &q.model); bad != nil {
		return nil, bad
	}
	model, ok := r.Models[q.model]
	if !ok {
		return nil, refuse(http.StatusForbidden, codeModel, "route %s does not allow model %.128q: it allows %s", name,
			q.model, strings.Join(slices.Sorted(maps.Keys(r.Models)), ", "))
	}
	for _, check := range []func() *refusal{
		func() *refusal { return checkCommon(o) },
		func() *refusal { return checkTools(o, e.dialect) },
		func() *refusal { return checkAPI(o, r.API, e.dialect) },
		func() *refusal { return q.setStream(o, r.API, e.dialect) },
		func() *refusal { return q.setBound(o, model, e.dialect) },
	} {
		if bad := check(); bad != nil {
			return nil, bad
		}
	}
	return q, nil
}

func unsupported(what string, args ...any) *refusal {
	return refuse(http.StatusBadRequest, codeUnsupported,
		"%s: the gateway allows only calls that it can price by their tokens", fmt.Sprintf(what, args...))
}

// elsewhere are parameters that send a call to another place or model. LiteLLM and OpenRouter have them.
var elsewhere = []string{
	"models", "plugins", "preset", "fallbacks", "context_window_fallbacks", "context_window_fallback_dict",
	"content_policy_fallbacks", "model_list", "api_base", "base_url", "api_key", "api_version", "custom_llm_provider",
	"extra_body", "extra_headers", "headers", "user_config", "router_settings_override", "mock_response",
	"web_search_options", "mcp_servers", "container", "audio",
}

func checkCommon(o object) *refusal {
	for _, key := range elsewhere {
		if o.has(key) {
			return unsupported("%s is not supported", key)
		}
	}
	var background bool
	if bad := o.read("background", &background); bad != nil {
		return bad
	}
	if background {
		return unsupported("background: true is not supported")
	}
	for key, allowed := range map[string][]string{
		"service_tier": {"auto", "default", "standard_only"}, "speed": {"standard"}, "inference_geo": {"global"},
	} {
		var value string
		if bad := o.read(key, &value); bad != nil {
			return bad
		}
		if o.has(key) && !slices.Contains(allowed, value) {
			return unsupported("%s %.64q is not supported, only %s", key, value, strings.Join(allowed, " and "))
		}
	}
	return nil
}

// checkTools refuses tools that the upstream itself runs and charges for. It encodes the tools again.
func checkTools(o object, d dialect) *refusal {
	if !o.has("tools") {
		return nil
	}
	tools, bad := o.items("tools")
	if bad != nil {
		return bad
	}
	list := append(make([]byte, 0, len(o["tools"])), '[')
	for i, text := range tools {
		tool, err := parseObject(text)
		if err != nil {
			return refuse(http.StatusBadRequest, codeInvalid, "tool %d cannot be read: %s", i+1, err)
		}
		var kind string
		if bad := tool.read("type", &kind); bad != nil {
			return bad
		}
		if !toolAllowed(kind, d) {
			return unsupported("tools of type %.64q are not supported", kind)
		}
		if i > 0 {
			list = append(list, ',')
		}
		list = tool.appendTo(list)
	}
	o["tools"] = append(list, ']')
	return nil
}

func toolAllowed(kind string, d dialect) bool {
	if !d.anthropic() {
		return kind == "function" || kind == "custom"
	}
	return kind == "" || kind == "custom" || slices.ContainsFunc(
		[]string{"bash_", "text_editor_", "computer_", "memory_"},
		func(prefix string) bool { return strings.HasPrefix(kind, prefix) })
}

func checkAPI(o object, api sandbox.LLMAPI, d dialect) *refusal {
	if _, bad := o.items("modalities"); bad != nil { // before they are decoded, because of its limit
		return bad
	}
	var modalities []string
	if bad := o.read("modalities", &modalities); bad != nil {
		return bad
	}
	if slices.ContainsFunc(modalities, func(m string) bool { return m != "text" }) {
		return unsupported("modalities other than text are not supported")
	}
	switch {
	case api == sandbox.LLMOpenRouter && o.has("route"):
		return unsupported("route is not supported")
	case d == responses && o.has("prompt"):
		return unsupported("prompt is not supported, because a stored prompt may bring tools")
	case d.anthropic() && bytes.Contains(o["context_management"], []byte("compact")):
		return unsupported("compaction by the upstream is not supported")
	}
	return nil
}

// setStream makes the upstream send the usage at the end of a stream.
func (q *request) setStream(o object, api sandbox.LLMAPI, d dialect) *refusal {
	if bad := o.read("stream", &q.stream); bad != nil {
		return bad
	}
	if api == sandbox.LLMOpenRouter && d == chat {
		o["usage"] = json.RawMessage(`{"include":true}`)
	}
	if d != chat {
		return nil
	}
	options := object{}
	var asked bool
	if o.has("stream_options") {
		var err error
		if options, err = parseObject(o["stream_options"]); err != nil {
			return refuse(http.StatusBadRequest, codeInvalid, "stream_options cannot be read: %s", err)
		}
		if bad := options.read("include_usage", &asked); bad != nil {
			return bad
		}
		o["stream_options"] = options.encode()
	}
	if q.stream && !asked {
		q.hide = api == sandbox.LLMOpenAI
		options["include_usage"] = json.RawMessage("true")
		o["stream_options"] = options.encode()
	}
	return nil
}

// Bounds of the use of a request.
const (
	// maxChoices keeps the reservation of one call in proportion to its model's max_output_tokens.
	maxChoices = 16
	// besides are the tokens that an upstream adds to the text of a request: the format of messages and, for tools, a
	// prompt that describes their use. Anthropic's prompt is the longest, with less than 1,500 tokens (read 2026-11).
	besides      = 64
	besidesTools = 2048
)

// setBound encodes the request and sets the most that it can use.
func (q *request) setBound(o object, m sandbox.LLMModel, d dialect) *refusal {
	if d == counting {
		q.body = o.encode()
		return nil
	}
	output, bad := outputBound(o, m, d)
	if bad != nil {
		return bad
	}
	refers, audio := contents(o, d)
	if audio {
		return unsupported("audio is not supported")
	}
	q.body = o.encode()
	input := int64(len(q.body)) + besides // each token has at least one byte
	if o.has("tools") {
		input += besidesTools
	}
	if refers {
		input = m.MaxInputTokens
	}
	q.most = pricing.MostInput(m, min(input, m.MaxInputTokens))
	q.most.Output = output
	q.cost = pricing.Tokens(m, q.most)
	return nil
}

func outputBound(o object, m sandbox.LLMModel, d dialect) (int64, *refusal) {
	var names []string
	switch d {
	case chat:
		names = []string{"max_completion_tokens", "max_tokens"}
	case responses:
		names = []string{"max_output_tokens"}
	case messages:
		names = []string{"max_tokens"}
	case embeddings:
		return 0, nil
	}
	var most int64
	for _, name := range names {
		if !o.has(name) {
			continue
		}
		var n int64
		if bad := o.read(name, &n); bad != nil {
			return 0, bad
		}
		if n < 1 || n > m.MaxOutputTokens {
			return 0, refuse(http.StatusBadRequest, codeInvalid, "%s must be between 1 and %d, which is "+
				"max_output_tokens of the model in the environment's route, not %d", name, m.MaxOutputTokens, n)
		}
		most = max(most, n)
	}
	if most == 0 {
		most = m.MaxOutputTokens
	}
	choices := int64(1)
	if bad := o.read("n", &choices); bad != nil {
		return 0, bad
	}
	if choices < 1 || choices > maxChoices {
		return 0, refuse(http.StatusBadRequest, codeInvalid, "n must be between 1 and %d, not %d", maxChoices, choices)
	}
	return most * choices, nil
}

// described are parameters with schemas and labels, but without content.
var described = []string{"tools", "tool_choice", "response_format", "text", "metadata", "output_config", "functions"}

// referring are names of members whose content is not in the request or not billed by its length.
var referring = []string{
	"image_url", "file_id", "file_url", "file_data", "file", "source", "video_url", "image", "video", "document", "audio",
}

// contents reports whether a request refers to content that its length does not bound, and whether it has audio.
func contents(o object, d dialect) (refers, audio bool) {
	refers = o.has("previous_response_id") || o.has("conversation")
	for name, value := range o {
		if slices.Contains(described, name) {
			continue
		}
		for text, key := range stringsIn(value) {
			// The longest name is far shorter. \u escapes have six bytes.
			if len(text) > 6*32 {
				continue
			}
			word := strings.ToLower(unescape(text))
			switch {
			case word == "input_audio":
				audio = true
			case key && (slices.Contains(referring, word) || word == "id" && d == responses), word == "item_reference":
				refers = true
			}
		}
	}
	return refers, audio
}

// stringsIn yields the strings in valid JSON, without their quotes, and whether each is a key.
func stringsIn(b []byte) func(yield func(text []byte, key bool) bool) {
	return func(yield func([]byte, bool) bool) {
		for i := 0; i < len(b); i++ {
			if b[i] != '"' {
				continue
			}
			begin, end := i+1, endOfString(b, i)
			i = end
			next := bytes.TrimLeft(b[min(end+1, len(b)):], " \t\r\n")
			if !yield(b[begin:end], len(next) > 0 && next[0] == ':') {
				return
			}
		}
	}
}
