// Command outside is a test's Internet: a web server with TLS on 443 and 8443, and one with plain HTTP on 80 and 8080.
// They answer with the request. Its name server resolves named.test to its own address. The web servers also answer
// model calls.
package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"strings"
	"time"
)

func main() {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		log.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(24 * time.Hour), DNSNames: []string{"*.test"}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		log.Fatal(err)
	}
	config := &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
	http.HandleFunc("/", echo)
	for _, port := range []string{"443", "8443", "80", "8080"} {
		l, err := net.Listen("tcp", ":"+port)
		if err != nil {
			log.Fatal(err)
		}
		if port == "443" || port == "8443" {
			l = tls.NewListener(l, config)
		}
		go func() { log.Fatal(http.Serve(l, nil)) }()
	}
	udp, err := net.ListenPacket("udp", ":53")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("ready")
	for b := make([]byte, 512); ; {
		n, from, err := udp.ReadFrom(b)
		if err != nil {
			log.Fatal(err)
		}
		if reply := answer(b[:n], own()); reply != nil {
			_, _ = udp.WriteTo(reply, from)
		}
	}
}

// answer replies to a DNS question. It returns nil for anything else.
func answer(query []byte, address net.IP) []byte {
	const header, name = 12, "\x05named\x04test\x00"
	end := bytes.IndexByte(query[min(header, len(query)):], 0) + header + 5 // the name, its type and its class
	if len(query) < header || end < header+5 || end > len(query) {
		return nil
	}
	question := query[header:end]
	known := strings.EqualFold(string(question[:len(question)-4]), name)
	isA := bytes.Equal(question[len(question)-4:], []byte{0, 1, 0, 1})
	reply := append([]byte{query[0], query[1], 0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0}, question...)
	switch {
	case !known:
		reply[3] |= 3 // no such name
	case isA:
		reply[7] = 1
		reply = append(reply, 0xc0, header, 0, 1, 0, 1, 0, 0, 0, 60, 0, net.IPv4len)
		reply = append(reply, address.To4()...)
	}
	return reply
}

// own returns the address of this container.
func own() net.IP {
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		log.Fatal(err)
	}
	for _, a := range addresses {
		if n, ok := a.(*net.IPNet); ok && !n.IP.IsLoopback() && n.IP.To4() != nil {
			return n.IP
		}
	}
	log.Fatal("this container has no address")
	return nil
}

func echo(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/v1/chat/completions":
		chat(w, r)
	case "/v1/responses":
		responses(w, r)
	case "/v1/messages":
		messages(w, r)
	case "/v1/messages/count_tokens":
		countTokens(w, r)
	case "/redirect":
		http.Redirect(w, r, r.URL.Query().Get("to"), http.StatusFound)
	case "/zeros":
		_, _ = io.CopyN(w, zeros{}, 256<<20)
	default:
		name := ""
		if r.TLS != nil {
			name = r.TLS.ServerName
		}
		fmt.Fprintf(w, "reached host=%s sni=%s", r.Host, name)
	}
}

// asked is a model call. A model answers with its input. The model stall stops in the middle of its answer. The
// model gone closes the connection there, and the model broken answers with an error.
type asked struct {
	Model         string
	Stream        bool
	StreamOptions struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
	says string
}

// read returns the call, or nil after it has answered with an error. form is the format of the API's errors, with %s
// for their members.
func read(w http.ResponseWriter, r *http.Request, form string) *asked {
	var a asked
	if err := json.NewDecoder(r.Body).Decode(&a); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return nil
	}
	if a.Model == "broken" {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprintf(w, form, `"type":"invalid_request_error","message":"the model is broken"`)
		return nil
	}
	sum := sha256.Sum256([]byte(r.Header.Get("Authorization") + r.Header.Get("X-Api-Key")))
	a.says = fmt.Sprintf("key=%x lease=%s agent=%s",
		sum[:8], r.Header.Get("X-Sandbox-Lease"), r.Header.Get("X-Sandbox-Agent"))
	return &a
}

// answerWhole sends an answer in one piece. stall's answer stops after its beginning; gone's has none.
func (a *asked) answerWhole(w http.ResponseWriter, r *http.Request, begin, end string) {
	if a.Model == "gone" {
		panic(http.ErrAbortHandler)
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprint(w, begin)
	if a.Model == "stall" {
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		return
	}
	fmt.Fprint(w, a.says, end)
}

// stream sends events: begin, one for each word, and end. word is the format of a word's event. The streams of stall
// and gone stop after their first word.
func (a *asked) stream(w http.ResponseWriter, r *http.Request, begin []string, word string, end ...string) {
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	send := func(event string) {
		fmt.Fprint(w, event, "\n\n")
		_ = http.NewResponseController(w).Flush()
	}
	for _, event := range begin {
		send(event)
	}
	for said := range strings.SplitAfterSeq(a.says, " ") {
		send(fmt.Sprintf(word, said))
		switch a.Model {
		case "stall":
			<-r.Context().Done()
			return
		case "gone":
			panic(http.ErrAbortHandler)
		}
	}
	for _, event := range end {
		send(event)
	}
}

func chat(w http.ResponseWriter, r *http.Request) {
	a := read(w, r, `{"error":{%s,"param":null,"code":null}}`)
	if a == nil {
		return
	}
	const usage = `"usage":{"prompt_tokens":1200,"completion_tokens":50,"total_tokens":1250,` +
		`"prompt_tokens_details":{"cached_tokens":200}}`
	if !a.Stream {
		a.answerWhole(w, r, `{"id":"1","object":"chat.completion","created":0,"model":"`+a.Model+`","choices":[{"index":0,`+
			`"message":{"role":"assistant","content":"`, `"},"finish_reason":"stop"}],`+usage+`}`)
		return
	}
	none := ""
	if a.StreamOptions.IncludeUsage {
		none = `,"usage":null`
	}
	chunk := `data: {"id":"1","object":"chat.completion.chunk","created":0,"model":"` + a.Model + `","choices":[`
	choice := func(delta, finish string) string {
		return chunk + `{"index":0,"delta":{` + delta + `},"finish_reason":` + finish + `}]` + none + `}`
	}
	end := []string{choice("", `"stop"`)}
	if a.StreamOptions.IncludeUsage {
		end = append(end, chunk+`],`+usage+`}`)
	}
	a.stream(w, r, []string{choice(`"role":"assistant","content":""`, "null")}, choice(`"content":"%s"`, "null"),
		append(end, "data: [DONE]")...)
}

func responses(w http.ResponseWriter, r *http.Request) {
	a := read(w, r, `{"error":{%s,"param":null,"code":null}}`)
	if a == nil {
		return
	}
	begin := func(status, usage string) string {
		return `{"id":"1","object":"response","created_at":0,"model":"` + a.Model + `","status":"` + status + `",` +
			`"usage":` + usage + `,"output":[`
	}
	const (
		usage = `{"input_tokens":1200,"output_tokens":50,"total_tokens":1250,"input_tokens_details":{"cached_tokens":200},` +
			`"output_tokens_details":{"reasoning_tokens":0}}`
		message = `{"id":"2","type":"message","role":"assistant","status":"completed","content":[`
		part    = `{"type":"output_text","annotations":[],"text":"`
	)
	if !a.Stream {
		a.answerWhole(w, r, begin("completed", usage)+message+part, `"}]}]}`)
		return
	}
	event := func(kind, members string) string {
		return "event: response." + kind + "\ndata: {\"type\":\"response." + kind + `","sequence_number":0,` + members + "}"
	}
	const at, inPart = `"output_index":0`, `"item_id":"2","output_index":0,"content_index":0`
	a.stream(w, r, []string{
		event("created", `"response":`+begin("in_progress", "null")+`]}`),
		event("output_item.added", at+`,"item":`+message+`]}`),
		event("content_part.added", inPart+`,"part":`+part+`"}`),
	}, event("output_text.delta", inPart+`,"delta":"%s"`),
		event("output_text.done", inPart+`,"text":"`+a.says+`"`),
		event("content_part.done", inPart+`,"part":`+part+a.says+`"}`),
		event("output_item.done", at+`,"item":`+message+part+a.says+`"}]}`),
		event("completed", `"response":`+begin("completed", usage)+message+part+a.says+`"}]}]}`))
}

const anthropicError = `{"type":"error","error":{%s},"request_id":"1"}`

func countTokens(w http.ResponseWriter, r *http.Request) {
	if read(w, r, anthropicError) != nil {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"input_tokens":1300}`)
	}
}

func messages(w http.ResponseWriter, r *http.Request) {
	a := read(w, r, anthropicError)
	if a == nil {
		return
	}
	begin := func(output int) string {
		return `{"id":"1","type":"message","role":"assistant","model":"` + a.Model + `","stop_sequence":null,"usage":{` +
			`"input_tokens":1000,"cache_creation_input_tokens":100,"cache_read_input_tokens":200,` +
			fmt.Sprintf(`"output_tokens":%d},`, output)
	}
	if !a.Stream {
		a.answerWhole(w, r, begin(50)+`"stop_reason":"end_turn","content":[{"type":"text","text":"`, `"}]}`)
		return
	}
	event := func(kind, members string) string {
		return "event: " + kind + "\ndata: {\"type\":\"" + kind + `"` + members + "}"
	}
	const at = `,"index":0`
	a.stream(w, r, []string{
		event("message_start", `,"message":`+begin(1)+`"stop_reason":null,"content":[]}`),
		event("content_block_start", at+`,"content_block":{"type":"text","text":""}`),
		event("ping", ""),
	}, event("content_block_delta", at+`,"delta":{"type":"text_delta","text":"%s"}`),
		event("content_block_stop", at),
		event("message_delta", `,"delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":50}`),
		event("message_stop", ""))
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }
