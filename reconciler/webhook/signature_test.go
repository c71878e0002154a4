package webhook_test

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/webhook"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// The test vector that the Standard Webhooks libraries publish.
const (
	vectorSecret    = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	vectorID        = "msg_p5jXN8AQM9LWM0D4loKWxJek"
	vectorTimestamp = 1614265330
	vectorBody      = `{"test": 2432232314}`
	vectorSignature = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
)

func secret(t *testing.T, text string) webhook.Secret {
	t.Helper()
	s, err := webhook.ParseSecret(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func headers(id, timestamp, signature string) http.Header {
	h := http.Header{}
	h.Set(webhook.HeaderID, id)
	h.Set(webhook.HeaderTimestamp, timestamp)
	h.Set(webhook.HeaderSignature, signature)
	return h
}

func TestVerifyAcceptsAndSignMakesThePublishedVector(t *testing.T) {
	t.Parallel()
	key, now := secret(t, vectorSecret), time.Unix(vectorTimestamp, 0)

	made := http.Header{}
	if err := key.Sign(made, vectorID, now, []byte(vectorBody)); err != nil {
		t.Fatal(err)
	}
	if got := made.Get(webhook.HeaderSignature); got != vectorSignature {
		t.Errorf("Sign made %s, the vector is %s", got, vectorSignature)
	}
	id, source, err := webhook.Secrets{key}.Verify(headers(vectorID, strconv.Itoa(vectorTimestamp), vectorSignature),
		[]byte(vectorBody), now)
	if err != nil || id != vectorID || source != key.Source() {
		t.Errorf("Verify = %q, %q, %v", id, source, err)
	}
}

func TestVerifyRefuses(t *testing.T) {
	t.Parallel()
	ts := strconv.Itoa(vectorTimestamp)
	raw := strings.TrimPrefix(vectorSignature, "v1,")
	good := func() http.Header { return headers(vectorID, ts, vectorSignature) }
	for name, test := range map[string]struct {
		header http.Header
		body   string
		late   time.Duration
	}{
		"other body":              {header: good(), body: `{"test": 2432232315}`},
		"no headers":              {header: http.Header{}},
		"no id":                   {header: headers("", ts, vectorSignature)},
		"id with a dot":           {header: headers("msg.1", ts, vectorSignature)},
		"id that swallows a part": {header: headers(vectorID+"."+ts, ts, vectorSignature)},
		"id with a line break":    {header: headers("a\nb", ts, vectorSignature)},
		"id too long":             {header: headers(strings.Repeat("a", 257), ts, vectorSignature)},
		"id twice": {header: http.Header{
			webhook.HeaderID: {vectorID, vectorID}, webhook.HeaderTimestamp: {ts}, webhook.HeaderSignature: {vectorSignature}}},
		"timestamp with plus":      {header: headers(vectorID, "+"+ts, vectorSignature)},
		"timestamp with zero":      {header: headers(vectorID, "0"+ts, vectorSignature)},
		"timestamp with space":     {header: headers(vectorID, " "+ts, vectorSignature)},
		"timestamp with fraction":  {header: headers(vectorID, ts+".0", vectorSignature)},
		"negative timestamp":       {header: headers(vectorID, "-"+ts, vectorSignature)},
		"timestamp too large":      {header: headers(vectorID, "99999999999999999999", vectorSignature)},
		"empty timestamp":          {header: headers(vectorID, "", vectorSignature)},
		"too old":                  {header: good(), late: webhook.Tolerance + time.Second},
		"too new":                  {header: good(), late: -webhook.Tolerance - time.Second},
		"signature without scheme": {header: headers(vectorID, ts, raw)},
		"signature of scheme v1a":  {header: headers(vectorID, ts, "v1a,"+raw)},
		"signature not base64":     {header: headers(vectorID, ts, "v1,%%%")},
		"signature cut short":      {header: headers(vectorID, ts, vectorSignature[:20])},
		"empty signature":          {header: headers(vectorID, ts, "v1,")},
		"very many signatures":     {header: headers(vectorID, ts, strings.Repeat("v1,AAAA ", 40)+vectorSignature)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			body := test.body
			if body == "" {
				body = vectorBody
			}
			now := time.Unix(vectorTimestamp, 0).Add(test.late)
			_, _, err := webhook.Secrets{secret(t, vectorSecret)}.Verify(test.header, []byte(body), now)
			if sandbox.CodeOf(err) != sandbox.Unauthenticated {
				t.Errorf("Verify returned %v, not unauthenticated", err)
			}
		})
	}
}

// TestTheLogSaysWhichClockIsAhead: the error is for the log, where an operator looks for the cause.
func TestTheLogSaysWhichClockIsAhead(t *testing.T) {
	t.Parallel()
	good := headers(vectorID, strconv.Itoa(vectorTimestamp), vectorSignature)
	for off, want := range map[time.Duration]string{
		400 * time.Second:  "is 6m40s behind this clock, more than 5m0s",
		-400 * time.Second: "is 6m40s ahead of this clock, more than 5m0s",
	} {
		_, _, err := webhook.Secrets{secret(t, vectorSecret)}.Verify(good, []byte(vectorBody),
			time.Unix(vectorTimestamp, 0).Add(off))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v off: %v, want %s", off, err, want)
		}
	}
}

func TestVerifyToleratesFiveMinutesBothWays(t *testing.T) {
	t.Parallel()
	h := headers(vectorID, strconv.Itoa(vectorTimestamp), vectorSignature)
	for _, off := range []time.Duration{-webhook.Tolerance, webhook.Tolerance} {
		_, _, err := webhook.Secrets{secret(t, vectorSecret)}.Verify(h, []byte(vectorBody),
			time.Unix(vectorTimestamp, 0).Add(off))
		if err != nil {
			t.Errorf("%v off: %v", off, err)
		}
	}
}

func TestSeveralSecretsAreActiveUntilTheyEnd(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	old, current := secret(t, webhook.NewSecret()), secret(t, webhook.NewSecret())
	old.NotAfter = now.Add(time.Hour)
	receiver := webhook.Secrets{old, current}

	sign := func(at time.Time, keys ...webhook.Secret) http.Header {
		all := http.Header{}
		var signatures []string
		for _, k := range keys {
			if err := k.Sign(all, "m-1", at, []byte("{}")); err != nil {
				t.Fatal(err)
			}
			signatures = append(signatures, all.Get(webhook.HeaderSignature))
		}
		all.Set(webhook.HeaderSignature, strings.Join(signatures, " "))
		return all
	}
	for name, test := range map[string]struct {
		at   time.Time
		by   []webhook.Secret
		want string
	}{
		"the old one":                  {now, []webhook.Secret{old}, old.Source()},
		"the new one":                  {now, []webhook.Secret{current}, current.Source()},
		"both, as a sender in between": {now, []webhook.Secret{current, old}, old.Source()},
		"a stranger's and a good one":  {now, []webhook.Secret{secret(t, webhook.NewSecret()), current}, current.Source()},
		"the new one after the end":    {now.Add(2 * time.Hour), []webhook.Secret{current}, current.Source()},
		"the old one after its end":    {now.Add(2 * time.Hour), []webhook.Secret{old}, ""},
		"a stranger's":                 {now, []webhook.Secret{secret(t, webhook.NewSecret())}, ""},
	} {
		_, source, err := receiver.Verify(sign(test.at, test.by...), []byte("{}"), test.at)
		if source != test.want || (err == nil) != (test.want != "") {
			t.Errorf("%s: signed by %q, error %v; want %q", name, source, err, test.want)
		}
	}
}

func TestAnEmptySecretIsRefusedEverywhere(t *testing.T) {
	t.Parallel()
	short := "whsec_" + base64.StdEncoding.EncodeToString(make([]byte, 23))
	long := "whsec_" + base64.StdEncoding.EncodeToString(make([]byte, 65))
	for _, text := range []string{
		"", "whsec_", short, long, "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaS*",
		"whpk_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
	} {
		if _, err := webhook.ParseSecret(text); sandbox.CodeOf(err) != sandbox.Invalid {
			t.Errorf("ParseSecret(%q) = %v, not invalid", text, err)
		} else if len(text) > 10 && strings.Contains(err.Error(), text[6:]) {
			t.Errorf("the error repeats the secret: %v", err)
		}
	}
	var zero webhook.Secret
	if err := zero.Sign(http.Header{}, "m", time.Now(), nil); err == nil {
		t.Error("the zero secret signs")
	}
	// A message forged with the empty key: HMAC-SHA256("", "m.1614265330.{}").
	h := headers("m", strconv.Itoa(vectorTimestamp), "v1,4pkeipPXmwEQWXGo5TnBJBmbGc2HLdYN/Qx9HUEyMdw=")
	if _, _, err := (webhook.Secrets{zero}).Verify(h, []byte("{}"), time.Unix(vectorTimestamp, 0)); err == nil {
		t.Error("the zero secret verifies")
	}
}

func TestASecretNeverShows(t *testing.T) {
	t.Parallel()
	s := secret(t, vectorSecret)
	for _, text := range []string{fmt.Sprint(s), fmt.Sprintf("%v %+v %#v %s", s, s, s, s), s.LogValue().String()} {
		if !strings.Contains(text, "hidden") || strings.Contains(text, "MfKQ") || strings.Contains(text, "49 242") {
			t.Errorf("a secret prints as %s", text)
		}
	}
}

// FuzzVerify changes a signed message. Only the original message is accepted, with any spelling of its headers.
func FuzzVerify(f *testing.F) {
	f.Add(vectorID, "1614265330", vectorSignature, []byte(vectorBody))
	f.Add(vectorID, "01614265330", vectorSignature, []byte(vectorBody))
	f.Add(vectorID, "1614265330", "v1,AAAA "+vectorSignature+" v2,x", []byte(vectorBody))
	f.Add(vectorID, "1614265330", strings.TrimRight(vectorSignature, "="), []byte(vectorBody))
	f.Add(vectorID+".1614265330", "1614265330", vectorSignature, []byte(vectorBody))
	f.Add("", "", "v1,", []byte{})
	key, err := webhook.ParseSecret(vectorSecret)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, id, timestamp, signature string, body []byte) {
		got, _, err := webhook.Secrets{key}.Verify(headers(id, timestamp, signature), body, time.Unix(vectorTimestamp, 0))
		genuine := id == vectorID && timestamp == strconv.Itoa(vectorTimestamp) && string(body) == vectorBody
		signed := slices.Contains(strings.Fields(signature), vectorSignature)
		if err == nil && (!genuine || !signed || got != vectorID) {
			t.Errorf("accepted as %q: %q %q %q %q", got, id, timestamp, signature, body)
		}
		if err != nil && sandbox.CodeOf(err) != sandbox.Unauthenticated {
			t.Errorf("refused with code %s: %v", sandbox.CodeOf(err), err)
		}
		if err != nil && genuine && signature == vectorSignature {
			t.Errorf("the message as it was sent is refused: %v", err)
		}
	})
}
