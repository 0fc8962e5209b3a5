<?php
// PHP's HTTP client, which says what it took for an answer's Server field: `web.php HOST PORT...`, see web.py.
error_reporting(0);
$host = $argv[1];
foreach (array_slice($argv, 2) as $port) {
    $options = ['http' => ['timeout' => 3, 'ignore_errors' => true, 'follow_location' => 0]];
    $http_response_header = [];
    $stream = fopen("http://$host:$port/", 'r', false, stream_context_create($options));
    $fields = $stream ? stream_get_meta_data($stream)['wrapper_data'] : $http_response_header;
    $seen = '';
    // The first is the status line.
    foreach (array_slice($fields ?? [], 1) as $field) {
        [$name, $value] = array_pad(explode(':', $field, 2), 2, '');
        if (strcasecmp(trim($name), 'Server') === 0) {
            $seen .= $value;
        }
    }
    echo $port, ' ', bin2hex($seen) ?: '-', "\n";
}
