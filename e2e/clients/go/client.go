// HTTP/2 by Go's own client: files, many at once, parts, uploads, a refused one, one that is not
// read to its end. Over TLS it is that of net/http; by prior knowledge that of golang.org/x/net,
// which is the same code.
//
// Usage: client BASE-URL CERTIFICATE SERVED-DIRECTORY, or client trailers BASE-URL. Says how many
// cases passed.
package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/net/http2"
)

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func demand(holds bool, what string, found ...any) {
	if !holds {
		log.Fatal(what, ": ", fmt.Sprint(found...))
	}
}

func transport(base, certificate string) http.RoundTripper {
	if strings.HasPrefix(base, "http:") {
		dial := func(network, address string, _ *tls.Config) (net.Conn, error) {
			return net.Dial(network, address)
		}
		return &http2.Transport{AllowHTTP: true, DialTLS: dial}
	}
	text, err := os.ReadFile(certificate)
	check(err)
	roots := x509.NewCertPool()
	demand(roots.AppendCertsFromPEM(text), "no certificate", certificate)
	return &http.Transport{
		ForceAttemptHTTP2: true,
		MaxConnsPerHost:   1,
		TLSClientConfig:   &tls.Config{RootCAs: roots},
	}
}

type reply struct {
	status  int
	length  int64
	version string
	body    []byte
}

func main() {
	log.SetFlags(0)
	if os.Args[1] == "trailers" {
		trailers(os.Args[2])
		return
	}
	base, directory := os.Args[1], os.Args[3]
	client := &http.Client{Transport: transport(base, os.Args[2])}
	read := func(name string) []byte {
		found, err := os.ReadFile(filepath.Join(directory, name))
		check(err)
		return found
	}
	small, large := read("small"), read("large")

	send := func(method, path string, body io.Reader, fields ...string) (reply, error) {
		request, err := http.NewRequest(method, base+path, body)
		check(err)
		for at := 0; at+1 < len(fields); at += 2 {
			request.Header.Set(fields[at], fields[at+1])
		}
		answer, err := client.Do(request)
		if err != nil {
			return reply{}, err
		}
		defer answer.Body.Close()
		content, err := io.ReadAll(answer.Body)
		return reply{answer.StatusCode, answer.ContentLength, answer.Proto, content}, err
	}
	ask := func(method, path string, body io.Reader, fields ...string) reply {
		found, err := send(method, path, body, fields...)
		check(err)
		return found
	}
	cases := []func(){
		func() {
			found := ask("GET", "/small", nil)
			demand(found.version == "HTTP/2.0" && bytes.Equal(found.body, small), "GET", found.version)
		},
		func() {
			replies := make(chan error)
			for at := 0; at < 100; at++ {
				go func(at int) {
					found, err := send("GET", fmt.Sprint("/small?", at), nil)
					if err == nil && !bytes.Equal(found.body, small) {
						err = fmt.Errorf("request %d: status %d", at, found.status)
					}
					replies <- err
				}(at)
			}
			for at := 0; at < 100; at++ {
				check(<-replies)
			}
		},
		func() {
			demand(bytes.Equal(ask("GET", "/large", nil).body, large), "a large file")
			part := ask("GET", "/large", nil, "Range", "bytes=70000-1070000")
			demand(part.status == 206 && bytes.Equal(part.body, large[70_000:1_070_001]), "a part")
		},
		func() {
			found := ask("HEAD", "/large", nil)
			demand(found.length == int64(len(large)) && len(found.body) == 0, "HEAD", found.length)
			found = ask("GET", "/absent", nil)
			demand(found.status == 404, "what is not there", found.status)
		},
		func() {
			stored := filepath.Join(directory, "new-by-go")
			// The second has no length that the client knows.
			for _, body := range []io.Reader{bytes.NewReader(large), io.MultiReader(bytes.NewReader(large))} {
				found := ask("PUT", "/new-by-go", body)
				demand(found.status == 201 && bytes.Equal(read("new-by-go"), large), "PUT", found.status)
				check(os.Remove(stored))
			}
		},
		func() {
			for at := 0; at < 10; at++ {
				found := ask("PUT", "/small/new", bytes.NewReader(large))
				demand(found.status >= 400 && found.status < 500, "a refused upload", found.status)
			}
		},
		func() {
			answer, err := client.Get(base + "/large")
			check(err)
			_, err = io.ReadFull(answer.Body, make([]byte, 1000))
			check(err)
			check(answer.Body.Close())
			demand(bytes.Equal(ask("GET", "/small", nil).body, small), "after a reset")
		},
	}
	for _, run := range cases {
		run()
	}
	fmt.Println(len(cases), "cases")
}
