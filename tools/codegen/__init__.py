"""Makes coro-amqp's `spec.py` and its codec from RabbitMQ's machine-readable description of AMQP 0-9-1.

    python -m tools.codegen PATH/amqp-rabbitmq-0.9.1.json           # write the files
    python -m tools.codegen --check PATH/amqp-rabbitmq-0.9.1.json   # compare them with what is there

`schema.py` reads the file, `python_file.py` and `cython_file.py` write. The output depends on the contents and the name
of the file and on nothing else. It is checked in, because users have neither the file nor this tool.
"""
