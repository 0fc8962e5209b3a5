// Go's HTTP client, which says what it took for an answer's Server field: `web HOST PORT...`, see web.py.
package main

import (
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"os"
	"sync"
	"time"
)

const patience = 3000 * time.Millisecond

func ask(host, port string) string {
	client := http.Client{
		Timeout:       patience,
		Transport:     &http.Transport{DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	seen := ""
	trace := &httptrace.ClientTrace{Got1xxResponse: func(_ int, header textproto.MIMEHeader) error {
		seen += header.Get("Server")
		return nil
	}}
	request, err := http.NewRequest("GET", "http://"+host+":"+port+"/", nil)
	if err != nil {
		panic(err)
	}
	response, err := client.Do(request.WithContext(httptrace.WithClientTrace(request.Context(), trace)))
	if err == nil {
		seen += response.Header.Get("Server")
		response.Body.Close()
	}
	return seen
}

func main() {
	ports := make(chan string, len(os.Args))
	for _, port := range os.Args[2:] {
		ports <- port
	}
	close(ports)
	var lanes sync.WaitGroup
	for lane := 0; lane < 16; lane++ {
		lanes.Add(1)
		go func() {
			defer lanes.Done()
			for port := range ports {
				word := hex.EncodeToString([]byte(ask(os.Args[1], port)))
				if word == "" {
					word = "-"
				}
				fmt.Println(port, word)
			}
		}()
	}
	lanes.Wait()
}
