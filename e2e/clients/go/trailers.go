// Trailers both ways by net/http over HTTP/1.1, and by golang.org/x/net over HTTP/2.
package main

import (
	"fmt"
	"io"
	"net/http"
	"strings"
)

// Asks in each way, and says how many cases passed. POST /whole and PUT /streamed take a body with
// the trailer x-sum, and answer "BYTES bytes, x-sum SUM" with the trailer x-sum, which is the number
// of bytes.
func trailers(base string) {
	cases := 0
	for _, transport := range []http.RoundTripper{&http.Transport{}, transport(base, "")} {
		client := &http.Client{Transport: transport}
		for _, asked := range [][2]string{{"POST", "/whole"}, {"PUT", "/streamed"}} {
			for _, bytes := range []int{0, 5, 100_000} {
				body := io.MultiReader(strings.NewReader(strings.Repeat("x", bytes)))
				request, err := http.NewRequest(asked[0], base+asked[1], body)
				check(err)
				sum := fmt.Sprint(7 * bytes)
				request.Trailer = http.Header{"X-Sum": {sum}}
				request.Header.Set("TE", "trailers")
				reply, err := client.Do(request)
				check(err)
				_, isAnnounced := reply.Trailer["X-Sum"]
				demand(isAnnounced, "the head names it", reply.Proto, reply.Trailer)
				text, err := io.ReadAll(reply.Body)
				check(err)
				expected := fmt.Sprintf("%d bytes, x-sum %s", bytes, sum)
				demand(string(text) == expected, "the request's", reply.Proto, string(text))
				found := reply.Trailer.Get("X-Sum")
				demand(found == fmt.Sprint(bytes), "the reply's", reply.Proto, found)
				cases++
			}
		}
	}
	fmt.Println(cases, "cases")
}
